# SPDX-License-Identifier: Apache-2.0
"""One video file from another: every frame again, at exactly the time it was shown before."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.container import OutputContainer
from av.video.frame import PictureType

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.errors import WriteError
from robostream.tools.recode.frames import To420, VideoFrames, gamut_tags
from robostream.write import (
    VideoEncoderConfig,
    ffmpeg_options,
    move_durably,
    normal_thread_priority,
)


@dataclass(frozen=True, slots=True)
class VideoJob:
    """A video file to be made from another.

    Attributes:
        source: The file whose frames are taken.
        target: The file to make.
        num_frames: Frames of the source.
        rate: Frames per second, which an encoder takes for its decisions and its headers.
        options: How to encode.
    """

    source: Path
    target: Path
    num_frames: int
    rate: Fraction
    options: VideoEncoderConfig


def encode_video(job: VideoJob, on_frame: Callable[[], None]) -> None:
    """Make the file of a job; it appears at its place when it is whole.

    Raises:
        VideoFileError: The source is damaged.
        WriteError: The encoder or the disk refuses.
    """
    part = job.target.with_name(f"{job.target.name}.part")
    frames = VideoFrames(job.source)
    clock = frames.index.time_base.denominator
    # The clock of the source, for the track and for the list of edits that delays it: so every time
    # stays what it was, to the tick.
    options = {
        "movflags": "faststart",
        "video_track_timescale": str(clock),
        "movie_timescale": str(clock),
    }
    try:
        job.target.parent.mkdir(parents=True, exist_ok=True)
        with av.open(str(part), "w", format="mp4", options=options) as output:
            _encode(job, frames, output, on_frame)
        move_durably(part, job.target)
    except (OSError, av.FFmpegError) as error:
        if isinstance(error, WriteError):
            raise
        raise WriteError(
            f"{job.target}: cannot be written: {error}. The disk has "
            f"{format_bytes(shutil.disk_usage(job.target.parent).free)} left. {AGAIN}"
        ) from error
    finally:
        part.unlink(missing_ok=True)


AGAIN = "Files that are done are kept: run the same command again, and it goes on with the others."


def _encode(
    job: VideoJob, frames: VideoFrames, output: OutputContainer, on_frame: Callable[[], None]
) -> None:
    index = frames.index
    times = index.pts.astype(np.int64)
    usual = round(1 / (job.rate * index.time_base))
    durations = np.append(np.diff(times), times[-1] - times[-2] if len(times) > 1 else usual)
    pictures = map(To420(), frames.every())
    first = next(pictures)
    stream = _add_stream(output, first, job)
    packets = _packets(stream, chain([first], pictures), job.rate, on_frame)
    number = -1
    for number, packet in enumerate(packets):
        if packet.pts != number or number >= len(times):
            raise WriteError(_disorder(job, f"frame {packet.pts} as number {number}"))
        packet.time_base = index.time_base
        packet.pts = packet.dts = int(times[number])
        packet.duration = int(durations[number])
        output.mux(packet)
    if number + 1 != len(times):
        raise WriteError(_disorder(job, f"{number + 1} frames"))


def _add_stream(output: OutputContainer, first: av.VideoFrame, job: VideoJob) -> av.VideoStream:
    config.quiet_encoders()
    options = ffmpeg_options(job.options)
    stream = output.add_stream(job.options.codec, job.rate, options=options)
    assert isinstance(stream, av.VideoStream)
    stream.width, stream.height = first.width, first.height
    stream.pix_fmt = job.options.pix_fmt
    context = stream.codec_context
    context.time_base = 1 / job.rate
    context.colorspace, context.color_range = first.colorspace, first.color_range
    context.color_primaries, context.color_trc = gamut_tags(first)
    return stream


def _packets(
    stream: av.VideoStream,
    pictures: Iterable[av.VideoFrame],
    rate: Fraction,
    on_frame: Callable[[], None],
) -> Iterator[av.Packet[av.VideoStream]]:
    """Yield encoded pictures; the time of each is its number."""
    for number, picture in enumerate(pictures):
        if (picture.width, picture.height) != (stream.width, stream.height):
            raise WriteError(
                f"frame {number} has {picture.width}x{picture.height} pixels, those before it "
                f"{stream.width}x{stream.height}: one video cannot hold both."
            )
        picture.pts, picture.time_base = number, 1 / rate
        # A decoded frame remembers how it was stored, and encoders would take that for an order.
        picture.pict_type = PictureType.NONE
        # The first frame opens the encoder.
        with nullcontext() if number else normal_thread_priority():
            packets = stream.encode(picture)
        yield from packets
        on_frame()
    yield from stream.encode(None)


def _disorder(job: VideoJob, found: str) -> str:
    return (
        f"{job.source}: want the {job.num_frames} frames of the file from the encoder "
        f"{job.options.codec}, in order; it gave {found}. Choose another codec."
    )
