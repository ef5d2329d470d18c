# SPDX-License-Identifier: Apache-2.0
"""`robostream convert`: a v2.0 or v2.1 dataset as v3.0, without re-encoding."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from contextlib import closing
from functools import partial
from pathlib import Path

from robostream import config
from robostream.bench import consume, limit_time, run_rounds
from robostream.cli.arguments import add_json, add_option, positive, print_result
from robostream.errors import DatasetError
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset, share_of_cores
from robostream.tools import ConvertReport, convert_dataset

logger = logging.getLogger(__name__)

EXAMPLES = """\
  robostream convert ./my-dataset ./my-dataset-v3      rows and video packets are copied
  robostream convert ./my-dataset ./copy --jobs 8 --no-speed --json
To resume an interrupted run, repeat the command.
"""
_BATCH = 16
# Each dataset is streamed so often, in turn, for so long.
_ROUNDS, _SECONDS = 2, 3.0


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream convert`."""
    add = partial(add_option, parser, type=positive)
    parser.add_argument("root", metavar="SRC", help="the folder of a v2.0 or v2.1 dataset")
    parser.add_argument("copy", metavar="DEST", help="the folder to make; it must not exist")
    jobs_help = "processes that join files, one each"
    add("--jobs", default=share_of_cores(1), help=jobs_help, metavar="N")
    for kind, size in (
        ("data", config.DATA_FILES_SIZE_IN_MB),
        ("video", config.VIDEO_FILES_SIZE_IN_MB),
    ):
        flag, text = f"--{kind}-files-size-in-mb", f"size at which a {kind} file is full"
        add(flag, default=size, help=text, metavar="MB")
    speed_help = "do not measure the streaming speed before and after"
    parser.add_argument("--no-speed", action="store_true", help=speed_help)
    add_json(parser, "what was made")


def run(args: argparse.Namespace) -> int:
    """Make the copy, measure both, and print a report."""
    report = convert_dataset(
        args.root,
        args.copy,
        jobs=args.jobs,
        data_files_size_in_mb=args.data_files_size_in_mb,
        video_files_size_in_mb=args.video_files_size_in_mb,
    )
    speed = None if args.no_speed else measure_speed(Path(args.root), report.path)
    figures = dataclasses.asdict(report) | {"speed": speed}
    print_result(args, figures, _as_text(report, speed))
    return 0


def measure_speed(old: Path, new: Path) -> dict[str, float] | None:
    """Return the best samples/s of streaming each dataset.

    None if they are too small to tell, or if a frame cannot be read: nothing was decoded until now.
    """
    try:
        rates = run_rounds({root: partial(_stream, root) for root in (old, new)}, _ROUNDS)
    except DatasetError as error:  # the copy is as good as its source
        logger.warning("the streaming speed cannot be measured: %s", error)
        return None
    before, after = (max(rates[root]) for root in (old, new))
    if not (before and after):
        return None
    return {"before_samples_per_s": before, "after_samples_per_s": after, "ratio": after / before}


def _stream(root: Path) -> float:
    """Return the samples/s of a loader after its first batch."""
    stream = StreamingLeRobotDataset("convert", root, return_uint8=True, rank=0, world_size=1)
    loader = StreamingDataLoader(stream, _BATCH)
    with closing(loader):
        times = consume(limit_time(loader, _SECONDS))
    return times.num_measured / times.steady_s if times.num_measured else 0.0


def _as_text(report: ConvertReport, speed: dict[str, float] | None) -> str:
    kept = f", {report.kept_files} of them by an earlier run" if report.kept_files else ""
    others = f"\n  other files: {report.copied_files} copied" if report.copied_files else ""
    text = (
        f"{report.path}: {report.version} as v3.0, {report.episodes} episodes, {report.frames} "
        f"frames\n  files: {report.source_files} -> {report.files}{kept}{others}\n"
        "  checked: every row and every video packet equals its original, at the same time"
    )
    if speed is None:
        return text
    before, after, ratio = speed.values()
    return (
        f"{text}\n  streaming: {before:.0f} samples/s before, {after:.0f} after "
        f"({ratio:.2f} times), from this disk"
    )
