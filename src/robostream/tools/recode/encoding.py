# SPDX-License-Identifier: Apache-2.0
"""Re-encodes a video file; every frame keeps its exact presentation time."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.container import OutputContainer
from av.video.frame import PictureType

from robostream import config
from robostream.errors import WriteError
from robostream.tools.recode.frames import To420, VideoFrames, check_copy, gamut_tags
from robostream.tools.staging import new_file
from robostream.write import VideoEncoderConfig, add_stream, encode_frame

# The largest crf of each codec, which is the lowest quality.
_MOST_CRF = {"h264": 51, "hevc": 51, "libsvtav1": 63}
CODECS = tuple(_MOST_CRF)
# Longer than any encoder takes for one frame, or to flush at the end.
_STALL_S = 5 * config.ENCODER_STALL_S


@dataclass(frozen=True, slots=True)
class RecodeSpec:
    """How colour videos are encoded.

    Attributes:
        codec: One of CODECS.
        gop: Frames per key frame.
        crf: Quality; lower is better and larger. None for the default in `config.RECODE_CRF`.
    """

    codec: str = config.RECODE_CODEC
    gop: int = config.VIDEO_GOP
    crf: float | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"want one of the codecs {', '.join(CODECS)}; got {self.codec!r}")
        if self.crf is None:
            object.__setattr__(self, "crf", config.RECODE_CRF[self.codec])
        if not 0 <= (self.crf or 0) <= _MOST_CRF[self.codec]:
            raise ValueError(
                f"want a crf of 0 to {_MOST_CRF[self.codec]} for {self.codec}, got {self.crf}"
            )
        if self.gop < 1:
            raise ValueError(f"want a key frame every 1 frame or more, got a gop of {self.gop}")

    def encoder(self, threads: int) -> VideoEncoderConfig:
        """Return the encoder's options.

        There are no B-frames, so decoders, above all those of GPUs, return each frame at once
        instead of waiting for later packets.
        """
        options = VideoEncoderConfig(codec=self.codec, g=self.gop, crf=self.crf, threads=threads)
        if self.codec == "libsvtav1":  # makes no B-frames anyway
            return replace(options, preset=config.RECODE_SVTAV1_PRESET)
        return replace(options, extra_options={"bf": 0})


@dataclass(frozen=True, slots=True)
class VideoJob:
    """A video file to re-encode; `rate` is the frame rate that the encoder assumes."""

    source: Path
    target: Path
    num_frames: int
    rate: Fraction
    options: VideoEncoderConfig


def encode_video(job: VideoJob, on_frame: Callable[[], None]) -> None:
    """Encode one file; it appears under its name when it is complete.

    Raises:
        VideoFileError: The source is damaged.
        WriteError: The encoder or the disk fails.
    """
    frames = VideoFrames(job.source)
    clock = frames.index.time_base.denominator
    # The track and its edit list use the clock of the source, so all times stay exact.
    options = {
        "movflags": "faststart",
        "video_track_timescale": str(clock),
        "movie_timescale": str(clock),
    }
    with (
        new_file(job.target) as part,
        av.open(str(part), "w", format="mp4", options=options) as output,
    ):
        _encode(job, frames, output, on_frame)


def _encode(
    job: VideoJob, frames: VideoFrames, output: OutputContainer, on_frame: Callable[[], None]
) -> None:
    index = frames.index
    times = index.pts.astype(np.int64)
    tick_count = round(1 / (job.rate * index.time_base))
    durations = np.append(np.diff(times), times[-1] - times[-2] if len(times) > 1 else tick_count)
    images = map(To420(), frames.every())
    first = next(images)
    stream = _add_stream(output, first, job)
    packets = _packets(stream, chain([first], images), job.rate, on_frame)
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
    stream = add_stream(output, job.options, job.rate, (first.width, first.height))
    context = stream.codec_context
    context.colorspace, context.color_range = first.colorspace, first.color_range
    context.color_primaries, context.color_trc = gamut_tags(first)
    return stream


def _packets(
    stream: av.VideoStream,
    frames: Iterable[av.VideoFrame],
    rate: Fraction,
    on_frame: Callable[[], None],
) -> Iterator[av.Packet[av.VideoStream]]:
    """Yield encoded frames; the time of each is its number."""
    for number, frame in enumerate(frames):
        if (frame.width, frame.height) != (stream.width, stream.height):
            raise WriteError(
                f"frame {number} has {frame.width}x{frame.height} pixels, earlier frames have "
                f"{stream.width}x{stream.height}: one video cannot hold both."
            )
        frame.pts, frame.time_base = number, 1 / rate
        # A decoded frame keeps the type it was stored as, which would force the encoder's choice.
        frame.pict_type = PictureType.NONE
        yield from encode_frame(stream, frame)
        on_frame()
    yield from encode_frame(stream, None)


def _disorder(job: VideoJob, found: str) -> str:
    return (
        f"{job.source}: want all {job.num_frames} frames of the file from the encoder "
        f"{job.options.codec}, in order; it gave {found}. Choose another codec."
    )


def encode_and_check(job: VideoJob, on_frames: Callable[[int], object]) -> float:
    """Encode the file of a job unless it exists; return its PSNR, as `check_copy` does.

    `on_frames` receives the number of frames that were done since the last call. The process ends
    if the encoder stalls.
    """

    def count_frame() -> None:
        on_frames(1)
        faulthandler.dump_traceback_later(_STALL_S, exit=True)

    if job.target.exists():
        on_frames(job.num_frames)
    else:
        try:
            encode_video(job, count_frame)
        finally:
            faulthandler.cancel_dump_traceback_later()
    return check_copy(job.source, job.target)
