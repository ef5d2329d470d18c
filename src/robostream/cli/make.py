# SPDX-License-Identifier: Apache-2.0
"""Making datasets: `robostream synth`, `convert` and `recode`."""

from __future__ import annotations

import argparse
import dataclasses
import logging
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

from robostream import config, tools
from robostream.bench import consume, limit_time, run_rounds
from robostream.byte_sizes import format_bytes
from robostream.cli import arguments as cli
from robostream.config import RECODE_CRF
from robostream.errors import DatasetError, SelectionError
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset, share_of_cores

_SYNTH_EXAMPLES = """\
  robostream synth demo                             40 episodes, 3 cameras of 256x256, AV1
  robostream synth tiny --episodes 3 --frames 30 --cameras 1 --size 64x64
  robostream synth long-gop --codec h264 --gop 250 --crf 23
  robostream synth many-files --video-file-mb 1 --data-file-mb 0.05
  robostream synth mixed --image-cameras 1 --depth --json
"""


def _configure_synth(parser: argparse.ArgumentParser) -> None:
    default = tools.SynthSpec()
    parser.add_argument("dest", type=Path, metavar="DEST", help="a new or empty folder")
    cli.add_json(parser, "what was made")
    jobs_help = "processes that make episodes; the dataset is the same for any number"
    cli.add_option(parser, "--jobs", cli.positive, share_of_cores(1), jobs_help, metavar="N")

    add = partial(cli.add_option, parser.add_argument_group("content"))
    add("--episodes", cli.positive, default.episodes, "number of episodes")
    distinct_help = "make N different episodes and repeat them, which is quicker (all)"
    add("--distinct", cli.positive, None, distinct_help, metavar="N")
    lengths = default.min_frames, default.max_frames
    frames_help = "frames per episode, or one number ({}:{})".format(*lengths)
    add("--frames", _frames, lengths, frames_help, metavar="MIN:MAX")
    add("--fps", cli.positive, default.fps, "frames per second")
    add("--tasks", cli.positive, default.tasks, "number of different tasks")
    add("--seed", cli.natural, default.seed, "same seed, same dataset")

    cameras = parser.add_argument_group("cameras")
    add = partial(cli.add_option, cameras)
    add("--cameras", cli.natural, default.cameras, "number of cameras")
    images_help = "store the last N of them as images in Parquet"
    add("--image-cameras", cli.natural, default.image_cameras, images_help, metavar="N")
    cli.add_flag(cameras, "--depth", "add a 12-bit depth camera")
    size = default.width, default.height
    add("--size", _size, size, "size of a frame ({}x{})".format(*size), metavar="WxH")

    add = partial(cli.add_option, parser.add_argument_group("video and files"))
    add("--codec", str, default.codec, "libsvtav1, h264, hevc, ...")
    add("--gop", cli.positive, default.gop, "frames from one key frame to the next")
    add("--crf", float, default.crf, "quality, lower is better")
    add("--preset", str, None, "speed against size (12 for libsvtav1, else the codec's default)")
    file_help = "start a new {} file beyond this; may be a fraction".format
    mb: dict[str, Any] = {"type": _megabytes, "metavar": "MB"}
    add("--data-file-mb", default=default.data_file_mb, help=file_help("Parquet"), **mb)
    add("--video-file-mb", default=default.video_file_mb, help=file_help("video"), **mb)


def _run_synth(args: argparse.Namespace) -> int:
    values = vars(args) | dict(zip(("min_frames", "max_frames"), args.frames, strict=True))
    values |= dict(zip(("width", "height"), args.size, strict=True))
    names = [field.name for field in dataclasses.fields(tools.SynthSpec)]
    spec = tools.SynthSpec(**{name: values[name] for name in names})
    report = tools.make_dataset(args.dest, spec, jobs=args.jobs)
    pairs = report.camera_kbit_per_s.items()
    rates = "".join(f"\n  {key}: {rate:.0f} kbit/s" for key, rate in pairs)
    size = format_bytes(report.size_bytes)
    text = (
        f"{report.path}: {report.episodes} episodes, {report.frames} frames, {report.tasks} tasks\n"
        f"  files: {report.data_files} of rows, {report.video_files} of video; {size} in all{rates}"
    )
    cli.print_result(args, report, text)
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
    with suppress(ValueError):
        if (value := float(text)) > 0:
            return value
    raise argparse.ArgumentTypeError(f"want a number above 0, got {text}")


def _size(text: str) -> tuple[int, int]:
    """Return width and height of "640x480"."""
    try:
        width, height = (int(side) for side in text.lower().split("x"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"want WIDTHxHEIGHT, got {text!r}") from None
    return width, height


logger = logging.getLogger(__name__)

_CONVERT_EXAMPLES = """\
  robostream convert ./my-dataset ./my-dataset-v3      rows and video packets are copied
  robostream convert ./my-dataset ./copy --jobs 8 --no-speed --json
To resume an interrupted run, repeat the command.
"""
_BATCH = 16
# Each dataset is streamed so often, in turn, for so long.
_ROUNDS, _SECONDS = 2, 3.0


def _configure_convert(parser: argparse.ArgumentParser) -> None:
    add = partial(cli.add_option, parser, type=cli.positive)
    parser.add_argument("root", metavar="SRC", help="the folder of a v2.0 or v2.1 dataset")
    parser.add_argument("copy", metavar="DEST", help="the folder to make; it must not exist")
    jobs_help = "processes that join files, one each"
    add("--jobs", default=share_of_cores(1), help=jobs_help, metavar="N")
    sizes = {"data": config.DATA_FILES_SIZE_IN_MB, "video": config.VIDEO_FILES_SIZE_IN_MB}
    for kind, size in sizes.items():
        flag, text = f"--{kind}-files-size-in-mb", f"size at which a {kind} file is full"
        add(flag, default=size, help=text, metavar="MB")
    cli.add_flag(parser, "--no-speed", "do not measure the streaming speed before and after")
    cli.add_json(parser, "what was made")


def _run_convert(args: argparse.Namespace) -> int:
    names = ("data_files_size_in_mb", "video_files_size_in_mb")
    limits = {name: getattr(args, name) for name in names}
    report = tools.convert_dataset(args.root, args.copy, jobs=args.jobs, **limits)
    speed = None if args.no_speed else measure_speed(Path(args.root), report.path)
    figures = dataclasses.asdict(report) | {"speed": speed}
    cli.print_result(args, figures, _convert_text(report, speed))
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


def _convert_text(report: tools.ConvertReport, speed: dict[str, float] | None) -> str:
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


_RECODE_EXAMPLES = """\
  robostream recode ./my-dataset ./copy --codec h264       for GPUs that do not decode AV1
  robostream recode ./long-gop ./copy --codec libsvtav1    a key frame every 2 frames
  robostream recode ./my-dataset ./copy --codec hevc --gop 10 --crf 24 --json
To resume an interrupted run, repeat the command.
"""


def _configure_recode(parser: argparse.ArgumentParser) -> None:
    default, add = tools.RecodeSpec(), partial(cli.add_option, parser)
    parser.add_argument("root", metavar="ROOT", help="the folder of a dataset on this machine")
    parser.add_argument("copy", metavar="COPY", help="the folder to make; it must not exist")
    add("--codec", str, default.codec, "the new codec", choices=tuple(RECODE_CRF))
    add("--gop", cli.positive, default.gop, "frames from one key frame to the next")
    crfs = ", ".join(f"{crf:g} for {codec}" for codec, crf in RECODE_CRF.items())
    add("--crf", float, None, f"quality, lower is better ({crfs})")
    jobs_help = "processes that encode, a file each"
    add("--jobs", cli.positive, share_of_cores(1), jobs_help, metavar="N")
    link_help = (
        "hard-link unchanged files instead of copying them: takes no space, but editing the "
        "copy's file changes the original too"
    )
    cli.add_flag(parser, "--link", link_help)
    cli.add_json(parser, "what was made")


def _run_recode(args: argparse.Namespace) -> int:
    options = {"jobs": args.jobs, "cores": share_of_cores(1), "link": args.link}
    spec = tools.RecodeSpec(args.codec, args.gop, args.crf)
    report = tools.recode_dataset(args.root, args.copy, spec, **options)
    cli.print_result(args, report, _recode_text(report))
    return 0


def _recode_text(report: tools.RecodeReport) -> str:
    spec = report.spec
    cameras = {key: map(format_bytes, sizes) for key, sizes in report.camera_bytes.items()}
    sizes = "".join(f"\n  {key}: {' -> '.join(pair)}" for key, pair in cameras.items())
    kept = f", {report.kept_files} of them by an earlier run" if report.kept_files else ""
    same = ", ".join(f"{number} {how}" for how, number in report.same_files.items())
    return (
        f"{report.path}: {report.video_files} video files, {report.frames} frames, re-encoded"
        f"{kept}: {spec.codec}, a key frame every {spec.gop}, crf {spec.crf:g}{sizes}\n"
        f"  other files: {same}\n"
        f"  checked: every video has the frames and times of its original; the first and last "
        f"frame of each decode, PSNR {report.psnr_db:.1f} dB or more"
    )


# Their usage errors: an option that is out of range or that the encoder rejects.
SUBCOMMANDS = {
    "synth": cli.Command(_SYNTH_EXAMPLES, _configure_synth, _run_synth, (ValueError,)),
    "convert": cli.Command(_CONVERT_EXAMPLES, _configure_convert, _run_convert),
    "recode": cli.Command(_RECODE_EXAMPLES, _configure_recode, _run_recode, (SelectionError,)),
}
