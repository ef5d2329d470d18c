# SPDX-License-Identifier: Apache-2.0
"""The frames of a video file, decoded as a reader of the dataset would get them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from robostream.decode import (
    FileRun,
    FrameIndex,
    PyavBackend,
    VideoSource,
    build_index,
    one_thread,
    plan_runs,
)
from robostream.errors import VideoFileError
from robostream.storage import LocalSource

# So many frames at least are decoded in one go; their packets are in memory together.
_PORTION_FRAMES = 64
_LIMITED_RANGE, _UNSPECIFIED = 1, 2


class VideoFrames:
    """The frames of one local video file. For one thread."""

    def __init__(self, path: Path) -> None:
        self._source = VideoSource(LocalSource(path))
        self._backend = PyavBackend()
        self.path = path
        self.index: FrameIndex = build_index(self._source)

    def every(self) -> Iterator[av.VideoFrame]:
        """Yield all frames in the order in which they are shown; one that is not there raises."""
        for first, stop in _portions(self.index):
            yield from self.some(range(first, stop))

    def some(self, numbers: range) -> Iterator[av.VideoFrame]:
        """Yield the frames of these numbers, in order; one that is not there raises."""
        wanted = iter(numbers)
        for run in plan_runs(self.index, np.array(numbers)):
            file_run = FileRun(self._source, self.index, run)
            for _, number, frame in self._backend.frames([file_run]):
                if frame is None or number not in numbers:
                    continue
                if number != (due := next(wanted)):
                    raise self._missing(due)
                yield frame
        if (due := next(wanted, -1)) >= 0:
            raise self._missing(due)

    def _missing(self, number: int) -> VideoFileError:
        return VideoFileError(
            f"{self.path}: the decoder gave no picture for frame {number}, or not in its turn. The "
            "file is damaged; download or copy it again."
        )


class To420:
    """Brings frames to yuv420p. Their colour coding stays what it was. For one thread."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def __call__(self, frame: av.VideoFrame) -> av.VideoFrame:
        """Return a frame as yuv420p, with its colour tags."""
        if frame.format.name == "yuv420p":
            return frame
        if frame.format.is_rgb:
            # RGB says no matrix. Readers take BT.601 for a video that names none, as FFmpeg does.
            made = self._reformatter.reformat(frame, format="yuv420p", **one_thread())
            made.colorspace, made.color_range = _UNSPECIFIED, _LIMITED_RANGE
            return made
        is_full = frame.format.name.startswith("yuvj") or frame.color_range == 2
        tags = {"colorspace": frame.colorspace, "color_range": 2 if is_full else _LIMITED_RANGE}
        same = {f"{side}_{name}": tag for name, tag in tags.items() for side in ("src", "dst")}
        made = self._reformatter.reformat(frame, format="yuv420p", **same, **one_thread())
        made.colorspace, made.color_range = frame.colorspace, tags["color_range"]
        return made


def gamut_tags(frame: av.VideoFrame) -> tuple[int, int]:
    """Return the tags for primaries and transfer. PyAV 15 does not say, and no reader here asks."""
    names = ("color_primaries", "color_trc")
    primaries, transfer = (int(getattr(frame, name, _UNSPECIFIED)) for name in names)
    return primaries, transfer


def _portions(index: FrameIndex) -> Iterator[tuple[int, int]]:
    """Yield ranges of frames [first, stop) that begin where decoding may begin. Pure."""
    first = 0
    for start in [*index.start_frames.tolist(), index.num_frames]:
        if start - first >= _PORTION_FRAMES or start == index.num_frames > first:
            yield first, start
            first = start
