# SPDX-License-Identifier: Apache-2.0
"""`robostream bench stream` as a process that `bench suite` starts.

python -m robostream.bench.stream --repo_id ... --root ...
"""

from __future__ import annotations

import argparse
import sys

from robostream.bench.stream.command import configure, run
from robostream.errors import RobostreamError

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="robostream bench stream")
    configure(parser)
    try:
        sys.exit(run(parser.parse_args()))
    except RobostreamError as error:
        sys.exit(f"robostream bench stream: {error}")
