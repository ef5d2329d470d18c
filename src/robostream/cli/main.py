# SPDX-License-Identifier: Apache-2.0
"""The `robostream` command: argument parsing and exit codes, nothing else.

Exit codes: 0 success, 1 the command or a check failed, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import sys
from collections.abc import Sequence

from robostream import __version__
from robostream.errors import RobostreamError

# Each is a module of this package with EXAMPLES, configure(parser) and run(args) -> int. Only the
# chosen one is imported, because most of them import torch.
COMMANDS = {
    "demo": "make a small dataset, stream it, and check the promises",
    "info": "show the contents of a dataset: episodes, tasks, features, cameras, files",
    "synth": "make a synthetic dataset: a robot arm at a table, several cameras, any size",
    "recode": "copy a dataset with its videos re-encoded: another codec, more key frames",
    "plan": "estimate a run: steps, mixing, traffic, RAM and disk; reads no data",
    "order": "print or log the receipts of an order, or compare two logs",
    "shuffle": "measure how well a dataset is shuffled at several pool sizes",
    "diagnose": "check whether an episode decodes, and if not, why and what to do",
    "cache": "show, fill or clear the cache of remote bytes",
    "bench": "measure a part of robostream and print ratios against a reference",
}


def build_parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser, complete for the command that `argv` calls."""
    parser = argparse.ArgumentParser(
        prog="robostream",
        description="Stream LeRobot v3.0 datasets into distributed PyTorch training.",
        epilog="robostream COMMAND --help shows its options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"robostream {__version__}")
    parser.add_argument("-v", "--verbose", action="store_true", help="log progress")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, purpose in COMMANDS.items():
        module = importlib.import_module(f"robostream.cli.{name}") if name in argv else None
        subparser = subparsers.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"examples:\n{module.EXAMPLES}" if module else None,
        )
        if module:
            module.configure(subparser)
            subparser.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    argv = sys.argv[1:] if argv is None else list(argv)
    try:
        return _run(argv)
    except KeyboardInterrupt:  # also while a command's modules are imported
        print("robostream: interrupted", file=sys.stderr)
        return 130


def _run(argv: Sequence[str]) -> int:
    args = build_parser(argv).parse_args(argv)
    logging.basicConfig(
        level=logging.INFO if args.verbose else logging.WARNING, format="%(levelname)s %(message)s"
    )
    try:
        return int(args.run(args))
    except BrokenPipeError:  # `robostream ... | head` is not a failure
        sys.stderr.close()
        return 0
    except (RobostreamError, OSError) as error:  # OSError: an output file cannot be written
        print(f"robostream {args.command}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
