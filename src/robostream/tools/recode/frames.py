# SPDX-License-Identifier: Apache-2.0
"""The frames of a video file, decoded as for training, and whether a copy has the same ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from robostream.decode import (
    FrameIndex,
    PyavBackend,
    VideoFile,
    VideoSource,
    build_index,
    one_thread,
    plan_runs,
)
from robostream.errors import VideoFileError, WriteError
from robostream.storage import LocalSource

# The least number of frames decoded at a time; their packets are in memory together.
_CHUNK_FRAMES = 64
_LIMITED_RANGE, _UNSPECIFIED = 1, 2
_FULL_RANGE = 2
# Replaces the infinite PSNR of equal frames, which JSON cannot represent.
_EQUAL_DB = 100.0


class VideoFrames:
    """The frames of one local video file. For one thread."""

    def __init__(self, path: Path) -> None:
        source = VideoSource(LocalSource(path))
        self.path = path
        self.index: FrameIndex = build_index(source)
        self._file = VideoFile(source.name, source, self.index)
        self._backend = PyavBackend(read=lambda frame, _: frame)

    def every(self) -> Iterator[av.VideoFrame]:
        """Yield all frames in presentation order. Raises VideoFileError if one is missing."""
        for first, stop in _chunks(self.index):
            yield from self.some(range(first, stop))

    def some(self, numbers: range) -> Iterator[av.VideoFrame]:
        """Yield the frames of these numbers, in order. Raises VideoFileError if one is missing."""
        wanted = iter(numbers)
        for run in plan_runs(self.index, np.array(numbers)):
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


class To420:
    """Converts frames to yuv420p, keeping matrix and range. For one thread."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def __call__(self, frame: av.VideoFrame) -> av.VideoFrame:
        """Return a frame as yuv420p, with its colour tags."""
        if frame.format.name == "yuv420p":
            return frame
        if frame.format.is_rgb:
            # RGB has no matrix. For videos without one, readers assume BT.601, as FFmpeg does.
            matrix, range_tag, tags = _UNSPECIFIED, _LIMITED_RANGE, {}
        else:
            is_full = frame.format.name.startswith("yuvj") or frame.color_range == _FULL_RANGE
            matrix, range_tag = frame.colorspace, _FULL_RANGE if is_full else _LIMITED_RANGE
            tags = {"src_colorspace": matrix, "dst_colorspace": matrix}
            tags |= {"src_color_range": range_tag, "dst_color_range": range_tag}
        made = self._reformatter.reformat(frame, format="yuv420p", **tags, **one_thread())
        made.colorspace, made.color_range = matrix, range_tag
        return made


def gamut_tags(frame: av.VideoFrame) -> tuple[int, int]:
    """Return the tags for primaries and transfer, which PyAV 15 lacks and no reader here uses."""
    names = ("color_primaries", "color_trc")
    primaries, transfer = (int(getattr(frame, name, _UNSPECIFIED)) for name in names)
    return primaries, transfer


def _chunks(index: FrameIndex) -> Iterator[tuple[int, int]]:
    """Yield ranges of frames [first, stop) that begin where decoding may begin. Pure."""
    first = 0
    for start in [*index.start_frames.tolist(), index.num_frames]:
        if start - first >= _CHUNK_FRAMES or start == index.num_frames > first:
            yield first, start
            first = start


def check_copy(original: Path, copy: Path) -> float:
    """Return the lower PSNR, in dB, of the first and last frame (brightness only).

    Raises:
        WriteError: The copy has other frames, times, sizes or colour tags, or does not decode.
    """
    was, made = VideoFrames(original), VideoFrames(copy)
    want, found = was.index, made.index
    has_same_times = want.time_base == found.time_base and np.array_equal(
        want.pts.astype(np.int64), found.pts.astype(np.int64)
    )
    if not has_same_times:
        (first_s, last_s), (found_first_s, found_last_s) = want.ends_s(), found.ends_s()
        raise _differ(
            made,
            f"{want.num_frames} frames from {first_s:.6f} s to {last_s:.6f} s, at the times of "
            f"{was.path}",
            f"{found.num_frames} from {found_first_s:.6f} s to {found_last_s:.6f} s",
        )
    return min(_compare(was, made, number) for number in {0, want.num_frames - 1})


def _compare(was: VideoFrames, made: VideoFrames, number: int) -> float:
    """Return the PSNR of a frame and its copy. Raises WriteError if they are coded differently."""
    one = range(number, number + 1)
    ((want,), (found,)) = (map(To420(), frames.some(one)) for frames in (was, made))
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
