# SPDX-License-Identifier: Apache-2.0
"""`robostream recode`: copy a dataset with its colour videos re-encoded."""

from __future__ import annotations

import argparse
from functools import partial

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_json, add_option, fail, positive, print_result
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
    default, add = RecodeSpec(), partial(add_option, parser)
    parser.add_argument("root", metavar="ROOT", help="the folder of a dataset on this machine")
    parser.add_argument("copy", metavar="COPY", help="the folder to make; it must not exist")
    add("--codec", str, default.codec, "the new codec", choices=RECODE_CODECS)
    add("--gop", positive, default.gop, "frames from one key frame to the next")
    crfs = ", ".join(f"{crf:g} for {codec}" for codec, crf in RECODE_CRF.items())
    add("--crf", float, None, f"quality, lower is better ({crfs})")
    jobs_help = "processes that encode, a file each"
    add("--jobs", positive, share_of_cores(1), jobs_help, metavar="N")
    link_help = (
        "hard-link unchanged files instead of copying them: takes no space, but editing the "
        "copy's file changes the original too"
    )
    parser.add_argument("--link", action="store_true", help=link_help)
    add_json(parser, "what was made")


def run(args: argparse.Namespace) -> int:
    """Make the copy and print a report."""
    options = {"jobs": args.jobs, "cores": share_of_cores(1), "link": args.link}
    try:
        spec = RecodeSpec(args.codec, args.gop, args.crf)
        report = recode_dataset(args.root, args.copy, spec, **options)
    except RobostreamError:
        raise
    except ValueError as error:  # an option that is out of range or that the encoder rejects
        return fail(args, error, 2)
    print_result(args, report, _as_text(report))
    return 0


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
