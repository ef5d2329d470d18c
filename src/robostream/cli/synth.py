# SPDX-License-Identifier: Apache-2.0
"""`robostream synth`: make a dataset of a simulated robot arm at a table."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import positive
from robostream.loader import share_of_cores
from robostream.tools import SynthReport, SynthSpec, make_dataset

EXAMPLES = """\
  robostream synth demo                             40 episodes, 3 cameras of 256x256, AV1
  robostream synth tiny --episodes 3 --frames 30 --cameras 1 --size 64x64
  robostream synth long-gop --codec h264 --gop 250 --crf 23
  robostream synth many-files --video-file-mb 1 --data-file-mb 0.05
  robostream synth mixed --image-cameras 1 --depth --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `robostream synth`."""
    default = SynthSpec()
    parser.add_argument("dest", type=Path, metavar="DEST", help="a new or empty folder")
    parser.add_argument("--json", action="store_true", help="print what was made as JSON")
    parser.add_argument(
        "--jobs",
        type=positive,
        default=share_of_cores(1),
        metavar="N",
        help="processes that make episodes; the dataset is the same for any number (%(default)s)",
    )
    add = parser.add_argument_group("content").add_argument
    add("--episodes", type=int, default=default.episodes, help="(%(default)s)")
    add(
        "--distinct",
        type=positive,
        metavar="N",
        help="make N different episodes and repeat them, which is quicker (all)",
    )
    add(
        "--frames",
        type=_frames,
        default=(default.min_frames, default.max_frames),
        metavar="MIN:MAX",
        help=f"frames per episode, or one number ({default.min_frames}:{default.max_frames})",
    )
    add("--fps", type=int, default=default.fps, help="(%(default)s)")
    add("--tasks", type=int, default=default.tasks, help="different tasks (%(default)s)")
    add("--seed", type=int, default=default.seed, help="same seed, same dataset (%(default)s)")
    _configure_cameras(parser, default)
    _configure_files(parser, default)


def run(args: argparse.Namespace) -> int:
    """Make the dataset and print a report."""
    try:
        report = make_dataset(args.dest, _spec(args), jobs=args.jobs)
    except ValueError as error:  # an option that is out of range or that the encoder rejects
        print(f"robostream synth: {error}", file=sys.stderr)
        return 2
    print(_as_json(report) if args.json else _as_text(report))
    return 0


def _configure_cameras(parser: argparse.ArgumentParser, default: SynthSpec) -> None:
    add = parser.add_argument_group("cameras").add_argument
    add("--cameras", type=int, default=default.cameras, help="how many (%(default)s)")
    add(
        "--image-cameras",
        type=int,
        default=default.image_cameras,
        metavar="N",
        help="store the last N of them as images in Parquet (%(default)s)",
    )
    add("--depth", action="store_true", help="add a 12-bit depth camera")
    add(
        "--size",
        type=_size,
        default=(default.width, default.height),
        metavar="WxH",
        help=f"of the images ({default.width}x{default.height})",
    )


def _configure_files(parser: argparse.ArgumentParser, default: SynthSpec) -> None:
    add = parser.add_argument_group("video and files").add_argument
    add("--codec", default=default.codec, help="libsvtav1, h264, hevc, ... (%(default)s)")
    add("--gop", type=int, default=default.gop, help="frames per key frame (%(default)s)")
    add("--crf", type=float, default=default.crf, help="quality, lower is better (%(default)s)")
    add("--preset", help="speed against size (12 for libsvtav1, else the codec's default)")
    add(
        "--data-file-mb",
        type=float,
        default=default.data_file_mb,
        metavar="MB",
        help="start a new Parquet file beyond this; may be a fraction (%(default)s)",
    )
    add(
        "--video-file-mb",
        type=float,
        default=default.video_file_mb,
        metavar="MB",
        help="start a new video file beyond this; may be a fraction (%(default)s)",
    )


def _spec(args: argparse.Namespace) -> SynthSpec:
    """Return the spec of the arguments, or raise ValueError."""
    values = vars(args) | {
        "min_frames": args.frames[0],
        "max_frames": args.frames[1],
        "width": args.size[0],
        "height": args.size[1],
    }
    return SynthSpec(**{field.name: values[field.name] for field in dataclasses.fields(SynthSpec)})


def _frames(text: str) -> tuple[int, int]:
    """Return the bounds of "200:320" or "250"."""
    low, _, high = text.partition(":")
    try:
        return int(low), int(high or low)
    except ValueError:
        raise argparse.ArgumentTypeError(f"want MIN:MAX or one number, got {text!r}") from None


def _size(text: str) -> tuple[int, int]:
    """Return width and height of "640x480"."""
    try:
        width, height = (int(side) for side in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"want WIDTHxHEIGHT, got {text!r}") from None
    return width, height


def _as_json(report: SynthReport) -> str:
    """Return the report for a script."""
    return json.dumps(dataclasses.asdict(report) | {"path": str(report.path)}, indent=2)


def _as_text(report: SynthReport) -> str:
    """Return the report for a person."""
    rates = "".join(
        f"\n  {key}: {rate:.0f} kbit/s" for key, rate in report.camera_kbit_per_s.items()
    )
    return (
        f"{report.path}: {report.episodes} episodes, {report.frames} frames, "
        f"{report.tasks} tasks\n"
        f"  {report.data_files} data files, {report.video_files} video files, "
        f"{format_bytes(report.size_bytes)}{rates}"
    )
