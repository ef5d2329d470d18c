# SPDX-License-Identifier: Apache-2.0
"""Whether a dataset is sound: `robostream doctor` and `diagnose`."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from robostream import tools
from robostream.assemble import DatasetLocation
from robostream.cli import arguments as cli
from robostream.errors import SelectionError

_DOCTOR_EXAMPLES = """\
  robostream doctor lerobot/pusht                         metadata, footers, video indexes
  robostream doctor ./my-dataset --rows --frames          every row and every frame
  robostream doctor ./my-dataset --frames --sample 0.05   the frames of one episode in 20
  robostream doctor ./my-dataset --fail-on warning --json
  robostream doctor ./my-dataset --split train 0:80 --split test 80:100
  robostream doctor ./my-dataset --rows --fix ./repaired
exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage, 130 interrupted
"""
_MOST_THREADS = 16


def _configure_doctor(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    levels = parser.add_argument_group("levels")
    cli.add_flag(levels, "--rows", "read all rows too")
    cli.add_flag(levels, "--frames", "decode frames too")
    sample_help = "decode only this share of the episodes, such as 0.05"
    levels.add_argument("--sample", type=cli.share, metavar="SHARE", help=sample_help)
    cli.add_flag(levels, "--all", "read all files of a remote dataset, not 500 of them at most")
    chunk_help = "warn of episodes with fewer frames; otherwise, those below 50 are noted"
    parser.add_argument("--chunk", type=cli.positive, metavar="FRAMES", help=chunk_help)
    split_help = "episodes A to B - 1; reads all rows; a recording in two splits is an error"
    parser.add_argument(
        "--split", nargs=2, action="append", metavar=("NAME", "A:B"), default=[], help=split_help
    )
    fix_help = "write a repaired copy to this new folder, where nothing must be invented"
    parser.add_argument("--fix", metavar="DEST", help=fix_help)
    fail_help = "the least verdict that makes the exit code 1 (%(default)s)"
    parser.add_argument("--fail-on", choices=("error", "warning"), default="error", help=fail_help)
    form = parser.add_mutually_exclusive_group()
    cli.add_flag(form, "--markdown", "print Markdown, for an issue")
    cli.add_json(form, "all checks")


def _run_doctor(args: argparse.Namespace) -> int:
    """Print the findings; exit code 1 if one is at or above --fail-on."""
    try:
        splits = {name: cli.episode_range(text) for name, text in args.split}
    except argparse.ArgumentTypeError as error:
        args.parser.error(f"argument --split: {error}")
    options = tools.DoctorOptions(
        reads_rows=args.rows or bool(splits),
        frames=(args.sample or 1.0) if args.frames or args.sample else 0.0,
        threads=min(os.cpu_count() or 1, _MOST_THREADS),
        reads_all=args.all,
        chunk=args.chunk,
        selections=splits,
    )
    if args.fix:
        tools.check_folders(args.dataset, Path(args.fix))  # before reading, which may take long
    examined = tools.examine_dataset(DatasetLocation(args.dataset, revision=args.revision), options)
    form: dict[str, Any] = {"markdown": args.markdown, "width": cli.text_width()}
    found = tools.examination_json(examined)
    show = (lambda _: None) if args.json else print
    show(tools.examination_text(examined, **form))
    if args.fix:
        repaired = tools.repair_dataset(args.dataset, Path(args.fix), options, before=examined)
        examined, found["repair"] = repaired.examined, tools.repair_json(repaired)
        show(f"\n{tools.repair_text(repaired, **form)}")
    if args.json:
        print(json.dumps(found, indent=2))
    return int(examined.verdict.name.lower() in ("error", args.fail_on))


_DIAGNOSE_EXAMPLES = """\
  robostream diagnose lerobot/pusht
  robostream diagnose ./my-dataset --episode 7 --camera observation.images.top
  robostream diagnose s3://bucket/my-dataset --json
Exit codes: 0 the episode decodes, 1 it does not, 2 wrong usage
"""


def _configure_diagnose(parser: argparse.ArgumentParser) -> None:
    cli.add_dataset(parser)
    cli.add_option(parser, "--episode", int, 0, "the episode to decode")
    several = {"dest": "cameras", "nargs": "+", "action": "extend", "metavar": "KEY"}
    cli.add_option(parser, "--camera", str, None, "the cameras to look at (all)", **several)
    parser.add_argument("--root", help="folder or URL of the dataset, if DATASET is only its name")
    files_help = "where data/ and videos/ are, if not beside meta/"
    parser.add_argument("--data-files-root", metavar="URL", help=files_help)
    cuda_help = "cuda: the GPU must be able to decode the videos too"
    cli.add_option(parser, "--video-decode-device", str, "cpu", cuda_help, choices=("cpu", "cuda"))
    cli.add_json(parser, "all facts and findings")


def _run_diagnose(args: argparse.Namespace) -> int:
    """Print what was seen; exit code 1 if the episode does not decode."""
    location = DatasetLocation(args.dataset, args.root, args.revision, args.data_files_root)
    options = {"cameras": args.cameras, "device": args.video_decode_device}
    look = tools.look_closely(location, episode=args.episode, **options)
    text = tools.look_text(look, width=cli.text_width())
    cli.print_result(args, tools.look_json(look), text)
    return 0 if look.decodes else 1


SUBCOMMANDS = {
    "doctor": cli.Command(_DOCTOR_EXAMPLES, _configure_doctor, _run_doctor),
    "diagnose": cli.Command(
        _DIAGNOSE_EXAMPLES, _configure_diagnose, _run_diagnose, (SelectionError,)
    ),
}
