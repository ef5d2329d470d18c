# SPDX-License-Identifier: Apache-2.0
"""`robostream doctor`: whether a dataset is sound; what is wrong, why it matters, what to do."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from robostream.assemble import DatasetLocation
from robostream.cli.arguments import add_dataset, add_json, fail, positive, text_width
from robostream.tools import (
    DoctorOptions,
    check_folders,
    examination_json,
    examination_text,
    examine_dataset,
    repair_dataset,
    repair_json,
    repair_text,
)

EXAMPLES = """\
  robostream doctor lerobot/pusht                         metadata, footers, video indexes
  robostream doctor ./my-dataset --rows --frames          every row and every frame
  robostream doctor ./my-dataset --frames --sample 0.05   the frames of one episode in 20
  robostream doctor ./my-dataset --fail-on warning --json
  robostream doctor ./my-dataset --split train 0:80 --split test 80:100
  robostream doctor ./my-dataset --rows --fix ./repaired
exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage, 130 interrupted
"""
_MOST_THREADS = 16


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream doctor`."""
    add_dataset(parser)
    levels = parser.add_argument_group("levels")
    levels.add_argument("--rows", action="store_true", help="read all rows too")
    levels.add_argument("--frames", action="store_true", help="decode frames too")
    sample_help = "decode only this share of the episodes, such as 0.05"
    levels.add_argument("--sample", type=_share, metavar="SHARE", help=sample_help)
    all_help = "read all files of a remote dataset, not 500 of them at most"
    levels.add_argument("--all", action="store_true", help=all_help)
    chunk_help = "warn of episodes with fewer frames; otherwise, those below 50 are noted"
    parser.add_argument("--chunk", type=positive, metavar="FRAMES", help=chunk_help)
    split_help = "episodes A to B - 1; reads all rows; a recording in two splits is an error"
    parser.add_argument(
        "--split", nargs=2, action="append", metavar=("NAME", "A:B"), default=[], help=split_help
    )
    fix_help = "write a repaired copy to this new folder, where nothing must be invented"
    parser.add_argument("--fix", metavar="DEST", help=fix_help)
    fail_help = "the least verdict that makes the exit code 1 (%(default)s)"
    parser.add_argument("--fail-on", choices=("error", "warning"), default="error", help=fail_help)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="print Markdown, for an issue")
    add_json(form, "all checks")


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit code 1 if one is at or above --fail-on."""
    try:
        splits = {name: _parse_split(text) for name, text in args.split}
    except ValueError as error:
        return fail(args, error, 2)
    options = DoctorOptions(
        reads_rows=args.rows or bool(splits),
        frames=(args.sample or 1.0) if args.frames or args.sample else 0.0,
        threads=min(os.cpu_count() or 1, _MOST_THREADS),
        reads_all=args.all,
        chunk=args.chunk,
        selections=splits,
    )
    if args.fix:
        check_folders(args.dataset, Path(args.fix))  # before reading, which may take long
    examined = examine_dataset(DatasetLocation(args.dataset, revision=args.revision), options)
    form: dict[str, Any] = {"markdown": args.markdown, "width": text_width()}
    found = examination_json(examined)
    show = (lambda _: None) if args.json else print
    show(examination_text(examined, **form))
    if args.fix:
        repaired = repair_dataset(args.dataset, Path(args.fix), options, before=examined)
        examined, found["repair"] = repaired.examined, repair_json(repaired)
        show(f"\n{repair_text(repaired, **form)}")
    if args.json:
        print(json.dumps(found, indent=2))
    return int(examined.verdict.name.lower() in ("error", args.fail_on))


def _share(text: str) -> float:
    try:
        if 0 < (share := float(text)) <= 1:
            return share
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"want a share above 0 and up to 1, got {text}")


def _parse_split(text: str) -> range:
    first, _, stop = text.partition(":")
    if not first.isdecimal() or not stop.isdecimal():
        raise ValueError(f"--split wants a name and episodes such as 0:80, got {text!r}")
    return range(int(first), int(stop))
