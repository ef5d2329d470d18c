# SPDX-License-Identifier: Apache-2.0
"""Re-encodes a video file: every frame keeps its exact presentation time, and is checked."""

from __future__ import annotations

import faulthandler
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import av
import numpy as np
from av.video.frame import PictureType
from av.video.reformatter import VideoReformatter

from robostream import config, decode
from robostream.errors import SelectionError, VideoFileError, WriteError
from robostream.storage import LocalSource
from robostream.tools.staging import new_file
from robostream.write import VideoEncoderConfig, add_stream, encode_frame

# The largest crf of each codec, which is the lowest quality.
_MOST_CRF = {"h264": 51, "hevc": 51, "libsvtav1": 63}
# Longer than any encoder takes for one frame, or to flush at the end.
_STALL_S = 5 * config.ENCODER_STALL_S
# The least number of frames decoded at a time; their packets are in memory together.
_CHUNK_FRAMES = 64
_LIMITED_RANGE, _UNSPECIFIED = 1, 2
_FULL_RANGE = 2
# Replaces the infinite PSNR of equal frames, which JSON cannot represent.
_EQUAL_DB = 100.0


class VideoFrames:
    """The frames of one local video file. For one thread."""

    def __init__(self, path: Path) -> None:
        source = decode.VideoSource(LocalSource(path))
        self.path = path
        self.index: decode.FrameIndex = decode.build_index(source)
        self._file = decode.VideoFile(source.name, source, self.index)
        self._backend = decode.PyavBackend(read=lambda frame, _: frame)

    def every(self) -> Iterator[av.VideoFrame]:
        """Yield all frames in presentation order. Raises VideoFileError if one is missing."""
        first, stop = 0, self.index.num_frames
        for start in [*self.index.start_frames.tolist(), stop]:  # where decoding may begin
            if start - first >= _CHUNK_FRAMES or start == stop > first:
                yield from self.some(range(first, start))
                first = start

    def some(self, numbers: range) -> Iterator[av.VideoFrame]:
        """Yield the frames of these numbers, in order. Raises VideoFileError if one is missing."""
        wanted = iter(numbers)
        for run in decode.plan_runs(self.index, np.array(numbers)):
            for _, number, frame in self._backend.decode([(self._file, run)]):
                if frame is None or number not in numbers:
                    continue
                if number != (due := next(wanted)):
                    raise self._missing(due)
                yield frame
        if (due := next(wanted, -1)) >= 0:
            raise self._missing(due)

    def _missing(self, number: int) -> VideoFileError:
        return VideoFileError(
            f"{self.path}: the decoder returned frame {number} late or not at all. The file is "
            "damaged; download or copy it again."
        )


def to_420(frames: Iterator[av.VideoFrame]) -> Iterator[av.VideoFrame]:
    """Yield frames as yuv420p, with their matrix and range."""
    reformatter = VideoReformatter()
    for frame in frames:
        if frame.format.name == "yuv420p":
            yield frame
            continue
        if frame.format.is_rgb:
            # RGB has no matrix. For videos without one, readers assume BT.601, as FFmpeg does.
            matrix, range_tag, tags = _UNSPECIFIED, _LIMITED_RANGE, {}
        else:
            is_full = frame.format.name.startswith("yuvj") or frame.color_range == _FULL_RANGE
            matrix, range_tag = frame.colorspace, _FULL_RANGE if is_full else _LIMITED_RANGE
            tags = {"src_colorspace": matrix, "dst_colorspace": matrix}
            tags |= {"src_color_range": range_tag, "dst_color_range": range_tag}
        made = reformatter.reformat(frame, format="yuv420p", **tags, **decode.one_thread())
        made.colorspace, made.color_range = matrix, range_tag
        yield made


def gamut_tags(frame: av.VideoFrame) -> tuple[int, int]:
    """Return the tags for primaries and transfer, which PyAV 15 lacks and no reader here uses."""
    names = ("color_primaries", "color_trc")
    primaries, transfer = (int(getattr(frame, name, _UNSPECIFIED)) for name in names)
    return primaries, transfer


def check_copy(original: Path, copy: Path) -> float:
    """Return the lower PSNR, in dB, of the first and last frame (brightness only).

    Raises WriteError if the copy has other frames, times, sizes or colour tags.
    """
    was, made = VideoFrames(original), VideoFrames(copy)
    want, found = was.index, made.index
    times, found_times = (index.pts.astype(np.int64) for index in (want, found))
    if want.time_base != found.time_base or not np.array_equal(times, found_times):
        (first_s, last_s), (found_first_s, found_last_s) = want.ends_s(), found.ends_s()
        wanted = f"{want.num_frames} frames from {first_s:.6f} s to {last_s:.6f} s, at the times of"
        other = f"{found.num_frames} from {found_first_s:.6f} s to {found_last_s:.6f} s"
        raise _differ(made, f"{wanted} {was.path}", other)
    return min(_compare(was, made, number) for number in {0, want.num_frames - 1})


def _compare(was: VideoFrames, made: VideoFrames, number: int) -> float:
    """Return the PSNR of a frame and its copy. Raises WriteError if they are coded differently."""
    one = range(number, number + 1)
    ((want,), (found,)) = (to_420(frames.some(one)) for frames in (was, made))
    if _coding(want) != _coding(found):
        raise _differ(made, f"{_coding(want)} as in {was.path}", f"{_coding(found)}")
    planes = (frame.to_ndarray()[: frame.height].astype(np.float64) for frame in (want, found))
    error = float(np.mean(np.subtract(*planes) ** 2))
    return 10 * math.log10(255**2 / error) if error else _EQUAL_DB


def _coding(frame: av.VideoFrame) -> tuple[int, ...]:
    """Return size and colour tags; an unspecified range counts as limited, as in readers."""
    is_full = frame.color_range == _FULL_RANGE
    return frame.width, frame.height, is_full, int(frame.colorspace), *gamut_tags(frame)


def _differ(made: VideoFrames, want: str, found: str) -> WriteError:
    return WriteError(
        f"{made.path}: want {want}; found {found}. Delete this file and run the command again, or "
        "choose another codec."
    )


@dataclass(frozen=True, slots=True)
class RecodeSpec:
    """How colour videos are encoded."""

    codec: str = config.RECODE_CODEC  # one of `config.RECODE_CRF`
    gop: int = config.VIDEO_GOP  # frames per key frame
    crf: float | None = None  # lower is better and larger; None for that of `config.RECODE_CRF`

    def __post_init__(self) -> None:
        if self.crf is None:
            object.__setattr__(self, "crf", config.RECODE_CRF[self.codec])
        if not 0 <= (self.crf or 0) <= _MOST_CRF[self.codec]:
            raise SelectionError(
                f"want a crf of 0 to {_MOST_CRF[self.codec]} for {self.codec}, got {self.crf}"
            )

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
    """Encode one file; it appears under its name when it is complete."""
    frames = VideoFrames(job.source)
    index, clock = frames.index, frames.index.time_base.denominator
    times = index.pts.astype(np.int64)
    tick_count = round(1 / (job.rate * index.time_base))
    durations = np.append(np.diff(times), times[-1] - times[-2] if len(times) > 1 else tick_count)
    # The track and its edit list use the clock of the source, so all times stay exact.
    scales = dict.fromkeys(("video_track_timescale", "movie_timescale"), str(clock))
    options = {"movflags": "faststart", **scales}
    with (
        new_file(job.target) as part,
        av.open(str(part), "w", format="mp4", options=options) as output,
    ):
        images = to_420(frames.every())
        first = next(images)
        stream = add_stream(output, job.options, job.rate, (first.width, first.height))
        context = stream.codec_context
        context.colorspace, context.color_range = first.colorspace, first.color_range
        context.color_primaries, context.color_trc = gamut_tags(first)
        packets = _packets(stream, chain([first], images), job.rate, on_frame)
        number = -1
        for number, packet in enumerate(packets):
            if packet.pts != number or number >= len(times):
                raise _disorder(job, f"frame {packet.pts} as number {number}")
            packet.time_base = index.time_base
            packet.pts = packet.dts = int(times[number])
            packet.duration = int(durations[number])
            output.mux(packet)
        if number + 1 != len(times):
            raise _disorder(job, f"{number + 1} frames")


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


def _disorder(job: VideoJob, found: str) -> WriteError:
    return WriteError(
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
