# SPDX-License-Identifier: Apache-2.0
"""Sum up results; `robostream bench report` under LeRobot's script's name."""

from __future__ import annotations

import sys

from robostream.cli.main import main

if __name__ == "__main__":
    sys.exit(main(["bench", "report", *sys.argv[1:]]))
