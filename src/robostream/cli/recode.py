# SPDX-License-Identifier: Apache-2.0
"""`robostream recode`: copy a dataset with its colour videos re-encoded."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import positive
from robostream.config import RECODE_CRF
from robostream.errors import RobostreamError
from robostream.loader import share_of_cores
from robostream.tools import RECODE_CODECS, RecodeReport, RecodeSpec, recode_dataset

EXAMPLES = """\
  robostream recode ./my-dataset ./copy --codec h264       for GPUs that do not decode AV1
  robostream recode ./long-gop ./copy --codec libsvtav1    a key frame every 2 frames
  robostream recode ./my-dataset ./copy --codec hevc --gop 10 --crf 24 --json
To resume an interrupted run, repeat the command.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream recode`."""
    default = RecodeSpec()
    add = parser.add_argument
    add("root", metavar="ROOT", help="the folder of a dataset on this machine")
    add("copy", metavar="COPY", help="the folder to make; it must not exist")
    add("--codec", choices=RECODE_CODECS, default=default.codec, help="(%(default)s)")
    add("--gop", type=positive, default=default.gop, help="frames per key frame (%(default)s)")
    crfs = ", ".join(f"{crf:g} for {codec}" for codec, crf in RECODE_CRF.items())
    add("--crf", type=float, help=f"quality, lower is better ({crfs})")
    add(
        "--jobs",
        type=positive,
        default=share_of_cores(1),
        metavar="N",
        help="processes that encode, a file each (%(default)s)",
    )
    add(
        "--link",
        action="store_true",
        help="hard-link unchanged files instead of copying them: takes no space, but editing the "
        "copy's file changes the original, too",
    )
    add("--json", action="store_true", help="print what was made as JSON")


def run(args: argparse.Namespace) -> int:
    """Make the copy and print a report."""
    try:
        spec = RecodeSpec(args.codec, args.gop, args.crf)
        cores = share_of_cores(1)
        report = recode_dataset(
            args.root, args.copy, spec, jobs=args.jobs, cores=cores, link=args.link
        )
    except RobostreamError:
        raise
    except ValueError as error:  # an option that is out of range or that the encoder rejects
        print(f"robostream recode: {error}", file=sys.stderr)
        return 2
    print(_as_json(report) if args.json else _as_text(report))
    return 0


def _as_json(report: RecodeReport) -> str:
    return json.dumps(dataclasses.asdict(report) | {"path": str(report.path)}, indent=2)


def _as_text(report: RecodeReport) -> str:
    spec = report.spec
    sizes = "".join(
        f"\n  {key}: {format_bytes(before)} -> {format_bytes(after)}"
        for key, (before, after) in report.camera_bytes.items()
    )
    kept = f", {report.kept_files} of them by an earlier run" if report.kept_files else ""
    same = ", ".join(f"{number} {how}" for how, number in report.same_files.items())
    return (
        f"{report.path}: {report.video_files} video files, {report.frames} frames, re-encoded"
        f"{kept}: {spec.codec}, a key frame every {spec.gop}, crf {spec.crf:g}{sizes}\n"
        f"  other files: {same}\n"
        f"  checked: every video has the frames and times of its original; the first and last "
        f"frame of each decode, PSNR {report.psnr_db:.1f} dB or more"
    )
