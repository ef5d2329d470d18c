# SPDX-License-Identifier: Apache-2.0
"""Measure dataloading at one setting; `robostream bench stream` under LeRobot's script's name."""

from __future__ import annotations

import sys

from robostream.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["bench", "stream", *sys.argv[1:]]))
