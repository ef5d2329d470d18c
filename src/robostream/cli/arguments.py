# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands share, and the printing of results."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from robostream.bench import format_table

Options = argparse.ArgumentParser | argparse._ArgumentGroup  # what options are added to
_NARROWEST_TEXT, _WIDEST_TEXT = 40, 100
DATASET_HELP = "a local folder, a Hub name such as lerobot/pusht, or an fsspec URL"


class Command(NamedTuple):
    """A subcommand: the examples in its help, what adds its arguments, and what runs it.

    `usage_errors` come from wrong arguments: the exit code is 2, not 1.
    """

    EXAMPLES: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    usage_errors: tuple[type[Exception], ...] = ()


def positive(text: str) -> int:
    """Return a whole number above 0, for argparse."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"want a whole number above 0, got {text}")
    return int(text)


def natural(text: str) -> int:
    """Return a whole number of 0 or more, for argparse."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"want a whole number of 0 or more, got {text}")
    return int(text)


def episode_range(text: str) -> range:
    """Return the episodes that a number or first:stop stands for, for argparse."""
    first, colon, stop = text.partition(":")
    if not first.isdecimal() or (colon and not stop.isdecimal()):
        raise argparse.ArgumentTypeError(
            f"want the number of an episode, or first:stop such as 0:10; got {text}"
        )
    return range(int(first), int(stop) if colon else int(first) + 1)


def share(text: str) -> float:
    """Return a share above 0 and up to 1, for argparse."""
    with suppress(ValueError):
        if 0 < (value := float(text)) <= 1:
            return value
    raise argparse.ArgumentTypeError(f"want a share above 0 and up to 1, got {text}")


class _JoinRanges(argparse.Action):
    """Stores several ranges as one list of numbers."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, [number for part in values for number in part])


def add_option(
    parser: Options,
    flag: str,
    type: Callable[[str], object],
    default: object,
    help: str = "",
    **others: Any,
) -> None:
    """Add an option whose help text ends with its default, unless that is None or a sequence."""
    if default is not None and not isinstance(default, tuple | list):
        help = f"{help} (%(default)s)".strip()
    parser.add_argument(flag, type=type, default=default, help=help, **others)


def add_flag(parser: Options, flag: str, help: str) -> None:
    """Add an option without a value."""
    parser.add_argument(flag, action="store_true", help=help)


def add_actions(
    parser: argparse.ArgumentParser, purposes: Mapping[str, str]
) -> dict[str, argparse.ArgumentParser]:
    """Add the actions of a command, with what each does, and return their parsers by name."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    return {
        name: actions.add_parser(name, help=purpose, description=f"{purpose.capitalize()}.")
        for name, purpose in purposes.items()
    }


def add_dataset(parser: argparse.ArgumentParser) -> None:
    """Add DATASET and --revision."""
    parser.add_argument("dataset", metavar="DATASET", help=DATASET_HELP)
    add_revision(parser)


def add_revision(parser: argparse.ArgumentParser) -> None:
    """Add --revision."""
    parser.add_argument("--revision", help="branch, tag or commit on the Hub")


def add_episodes(parser: argparse.ArgumentParser) -> None:
    """Add --episodes, a selection."""
    help_text = "episodes: numbers, or first:stop without stop itself, such as 0:10 (all)"
    several: dict[str, Any] = {"nargs": "+", "metavar": "N", "action": _JoinRanges}
    add_option(parser, "--episodes", episode_range, None, help_text, **several)


def add_json(parser: Options, what: str) -> None:
    """Add --json."""
    add_flag(parser, "--json", f"print {what} as JSON")


def print_result(args: argparse.Namespace, result: object, text: str) -> None:
    """Print a result (dataclasses, paths and what JSON knows) as JSON with --json, else `text`."""

    def encode(value: object) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return dataclasses.asdict(value)
        if isinstance(value, Path):
            return str(value)
        raise TypeError(f"cannot print {value!r} as JSON")

    print(json.dumps(result, indent=2, default=encode) if args.json else text)


def text_width() -> int:
    """Return how wide paragraphs are: as the terminal, but easy to read."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST_TEXT
    return max(_NARROWEST_TEXT, min(columns, _WIDEST_TEXT))


def terminal_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table that fits the terminal; whole if the output goes elsewhere."""
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return format_table(header, rows, columns=columns)
