# SPDX-License-Identifier: Apache-2.0
"""The `robostream` command: argument parsing and exit codes, nothing else.

Exit codes: 0 done, 1 the work failed or a check did not hold, 2 the command was called wrongly.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence

from robostream import __version__
from robostream.errors import RobostreamError

# Each is a module of this package with HELP, EXAMPLES, configure(parser) and run(args) -> int.
COMMANDS = ("demo", "info", "synth", "plan", "order", "shuffle", "diagnose", "bench")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="robostream",
        description="Stream LeRobot v3.0 datasets into distributed PyTorch training.",
    )
    parser.add_argument("--version", action="version", version=f"robostream {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="show what is going on")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        module = importlib.import_module(f"robostream.cli.{name}")
        subparser = subparsers.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"examples:\n{module.EXAMPLES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.configure(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    args = build_parser().parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )
    try:
        return int(args.run(args))
    except RobostreamError as error:
        print(f"robostream {args.command}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"robostream {args.command}: interrupted", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `robostream ... | head` is no failure
        sys.stderr.close()
        return 0


if __name__ == "__main__":
    sys.exit(main())
