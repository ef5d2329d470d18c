# SPDX-License-Identifier: Apache-2.0
"""The `robostream` command: argument parsing and exit codes, nothing else.

Exit codes: 0 success, 1 the command or a check failed, 2 wrong usage, 130 Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import logging
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from robostream import __version__
from robostream.errors import RobostreamError

COMMANDS = {
    "demo": "make a small dataset, stream it, and check the promises",
    "info": "show the contents of a dataset: episodes, tasks, features, cameras, files",
    "inspect": "make a page of a dataset: cameras, curves, lengths, tasks, statistics",
    "stats": "recompute the statistics of a dataset or selection from its rows, exactly",
    "synth": "make a synthetic dataset: a robot arm at a table, several cameras, any size",
    "convert": "copy a v2.0 or v2.1 dataset as v3.0: few large files, nothing re-encoded",
    "recode": "copy a dataset with its videos re-encoded: another codec, more key frames",
    "plan": "estimate a run: steps, mixing, traffic, RAM and disk; reads no data",
    "mix": "mixtures of datasets: plan one, its statistics, import another project's list",
    "order": "print or log the receipts of an order, or compare two logs",
    "explain": "show which frames, files and bytes made a batch of a run",
    "shuffle": "measure how well a dataset is shuffled at several pool sizes",
    "doctor": "check a dataset: what is wrong, why it matters, what to do; repair a copy",
    "diagnose": "look closely at one episode's videos: stream, key frames, times, decoding",
    "cache": "show, fill or clear the cache of remote bytes",
    "env": "print versions, machine and settings for an issue report",
    "bench": "measure a part of robostream and print ratios against a reference",
}
# Modules of several commands; those of the others have their names.
_MODULES = {
    **dict.fromkeys(("info", "inspect", "stats"), "contents"),
    **dict.fromkeys(("synth", "convert", "recode"), "make"),
    **dict.fromkeys(("order", "explain", "shuffle"), "order"),
    **dict.fromkeys(("cache", "env"), "machine"),
    "diagnose": "doctor",
}


class _Parser(argparse.ArgumentParser):
    """A parser whose errors suggest the command or option that was probably meant."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.set_defaults(parser=self)  # the innermost parser wins: it knows the options

    def error(self, message: str) -> NoReturn:
        """Exit with 2: list the commands if none is given, suggest a word that is close."""
        if self._subparsers is not None and "arguments are required" in message:
            self.print_help(sys.stderr)
            self.exit(2)
        choice = re.search(r"invalid choice: '([^']*)'( \(choose from (.*)\))", message)
        suggestion = _suggestion(choice[1], re.findall(r"[\w.-]+", choice[3])) if choice else ""
        if choice and suggestion:
            message = message.replace(choice[2], suggestion)
        super().error(message)

    def reject(self, unknown: Sequence[str]) -> NoReturn:
        """Exit with 2 because of arguments that the command does not have."""
        options = [flag for action in self._actions for flag in action.option_strings]
        texts = [
            word + (_suggestion(word.partition("=")[0], options) if word.startswith("-") else "")
            for word in unknown
        ]
        self.error(f"unknown argument{'s' * (len(texts) > 1)}: {', '.join(texts)}")

    def name_options(self, message: str) -> str:
        """Return an error of the library with `batch_size` written as `--batch-size`."""
        for action in self._actions:
            flag = next((flag for flag in action.option_strings if flag.startswith("--")), None)
            if flag is not None and "_" in action.dest:
                message = re.sub(rf"(?<![-\w]){action.dest}(?![-\w])", flag, message)
        return message


def _suggestion(word: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def load_command(name: str) -> Any:
    """Return EXAMPLES, configure(parser) and run(args) of a command: of a table, or a module.

    Only its module is imported, because many import torch.
    """
    module = importlib.import_module(f"robostream.cli.{_MODULES.get(name, name)}")
    return getattr(module, "SUBCOMMANDS", {}).get(name, module)


def build_parser(argv: Sequence[str]) -> _Parser:
    """Return the parser, complete for the command that `argv` calls."""
    parser = _Parser(
        prog="robostream",
        description="Stream LeRobot datasets into distributed PyTorch training.",
        epilog="robostream COMMAND --help shows its options and examples.",
    )
    parser.add_argument("--version", action="version", version=f"robostream {__version__}")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="log what is done, not only warnings"
    )
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name, purpose in COMMANDS.items():
        command = load_command(name) if name in argv else None
        subparser = subparsers.add_parser(
            name,
            help=purpose,
            description=f"{purpose[0].upper()}{purpose[1:]}.",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog=f"examples:\n{command.EXAMPLES}" if command else None,
        )
        if command:
            command.configure(subparser)
            errors = getattr(command, "usage_errors", ())
            subparser.set_defaults(run=command.run, usage_errors=errors)
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
    args, unknown = build_parser(argv).parse_known_args(argv)
    if unknown:
        args.parser.reject(unknown)
    level = logging.INFO if args.verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(message)s")
    try:
        return int(args.run(args))
    except BrokenPipeError:  # `robostream ... | head` is not a failure
        sys.stderr.close()
        return 0
    except (RobostreamError, OSError, *args.usage_errors) as error:  # OSError: of an output file
        print(f"{args.parser.prog}: {args.parser.name_options(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, args.usage_errors) else 1


if __name__ == "__main__":
    sys.exit(main())
