# SPDX-License-Identifier: Apache-2.0
"""`robostream synth`: make a dataset of a simulated robot arm at a table."""

from __future__ import annotations

import argparse
import dataclasses
from functools import partial
from pathlib import Path

from robostream.byte_sizes import format_bytes
from robostream.cli.arguments import add_json, add_option, fail, natural, positive, print_result
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
    add_json(parser, "what was made")
    jobs_help = "processes that make episodes; the dataset is the same for any number"
    add_option(parser, "--jobs", positive, share_of_cores(1), jobs_help, metavar="N")

    add = partial(add_option, parser.add_argument_group("content"))
    add("--episodes", positive, default.episodes, "number of episodes")
    distinct_help = "make N different episodes and repeat them, which is quicker (all)"
    add("--distinct", positive, None, distinct_help, metavar="N")
    lengths = default.min_frames, default.max_frames
    frames_help = "frames per episode, or one number ({}:{})".format(*lengths)
    add("--frames", _frames, lengths, frames_help, metavar="MIN:MAX")
    add("--fps", positive, default.fps, "frames per second")
    add("--tasks", positive, default.tasks, "number of different tasks")
    add("--seed", natural, default.seed, "same seed, same dataset")

    cameras = parser.add_argument_group("cameras")
    add = partial(add_option, cameras)
    add("--cameras", natural, default.cameras, "number of cameras")
    images_help = "store the last N of them as images in Parquet"
    add("--image-cameras", natural, default.image_cameras, images_help, metavar="N")
    cameras.add_argument("--depth", action="store_true", help="add a 12-bit depth camera")
    size = default.width, default.height
    add("--size", _size, size, "size of a frame ({}x{})".format(*size), metavar="WxH")

    add = partial(add_option, parser.add_argument_group("video and files"))
    add("--codec", str, default.codec, "libsvtav1, h264, hevc, ...")
    add("--gop", positive, default.gop, "frames from one key frame to the next")
    add("--crf", float, default.crf, "quality, lower is better")
    preset_help = "speed against size (12 for libsvtav1, else the codec's default)"
    add("--preset", str, None, preset_help)
    for kind, flag, size_mb in (
        ("Parquet", "--data-file-mb", default.data_file_mb),
        ("video", "--video-file-mb", default.video_file_mb),
    ):
        file_help = f"start a new {kind} file beyond this; may be a fraction"
        add(flag, _megabytes, size_mb, file_help, metavar="MB")


def run(args: argparse.Namespace) -> int:
    """Make the dataset and print a report."""
    values = vars(args) | {
        "min_frames": args.frames[0],
        "max_frames": args.frames[1],
        "width": args.size[0],
        "height": args.size[1],
    }
    names = [field.name for field in dataclasses.fields(SynthSpec)]
    try:
        spec = SynthSpec(**{name: values[name] for name in names})
        report = make_dataset(args.dest, spec, jobs=args.jobs)
    except ValueError as error:  # an option that is out of range or that the encoder rejects
        return fail(args, error, 2)
    print_result(args, report, _as_text(report))
    return 0


def _frames(text: str) -> tuple[int, int]:
    """Return the bounds of "200:320" or "250"."""
    low, _, high = text.partition(":")
    try:
        bounds = int(low), int(high or low)
    except ValueError:
        raise argparse.ArgumentTypeError(f"want MIN:MAX or one number, got {text!r}") from None
    if not 2 <= bounds[0] <= bounds[1]:
        raise argparse.ArgumentTypeError(f"want 2 <= MIN <= MAX, got {text}")
    return bounds


def _megabytes(text: str) -> float:
    """Return a size in MB above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not value > 0:
        raise argparse.ArgumentTypeError(f"want a number above 0, got {text}")
    return value


def _size(text: str) -> tuple[int, int]:
    """Return width and height of "640x480"."""
    try:
        width, height = (int(side) for side in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"want WIDTHxHEIGHT, got {text!r}") from None
    return width, height


def _as_text(report: SynthReport) -> str:
    rates = "".join(
        f"\n  {key}: {rate:.0f} kbit/s" for key, rate in report.camera_kbit_per_s.items()
    )
    return (
        f"{report.path}: {report.episodes} episodes, {report.frames} frames, "
        f"{report.tasks} tasks\n"
        f"  files: {report.data_files} of rows, {report.video_files} of video; "
        f"{format_bytes(report.size_bytes)} in all{rates}"
    )
