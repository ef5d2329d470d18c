# SPDX-License-Identifier: Apache-2.0
"""Where an episode's pictures lie in the video files."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.windows import Offsets
from robostream.decode import FrameIndex, VideoFile, VideoFiles, packet_span
from robostream.meta import LeRobotDatasetMetadata, check_span

_SAME_FRAMES = 0.1


def find_pictures(
    dataset: OpenedDataset, files: VideoFiles, episode: int, key: str
) -> tuple[VideoFile, npt.NDArray[np.int64]]:
    """Return a camera's video file of an episode, and the number in it of every picture."""
    meta = dataset.meta
    file = files.get(meta.get_video_file_path(episode, key).as_posix())
    tolerance_s = dataset.spec.tolerance_s
    return file, picture_numbers(meta, file.index, episode, key, tolerance_s=tolerance_s)


def picture_span(
    file: VideoFile, numbers: npt.NDArray[np.int64], first: int, stop: int, offsets: Offsets
) -> tuple[int, int]:
    """Return the bytes of an episode's frames [first, stop), and of their windows."""
    last = len(numbers) - 1
    begin = min(max(first + int(offsets.min()), 0), last)
    end = min(max(stop - 1 + int(offsets.max()), 0), last)
    return packet_span(file.index, numbers[begin : end + 1])


def picture_numbers(
    meta: LeRobotDatasetMetadata, index: FrameIndex, episode: int, key: str, *, tolerance_s: float
) -> npt.NDArray[np.int64]:
    """Return the number in its video file of every picture of an episode, or raise.

    Frame f is shown f / fps seconds after the episode begins in the file. (Whoever reads the rows
    checks that the table says the same.)
    """
    start_s = float(meta.episodes[f"videos/{key}/from_timestamp"][episode])
    stop_s = float(meta.episodes[f"videos/{key}/to_timestamp"][episode])
    length = int(meta.episodes["length"][episode])
    where = f"{key}, episode {episode}"
    if _ends_are_last_frames(meta, key):
        stop_s += 1 / meta.fps
    check_span(start_s, stop_s, length, meta.fps, f"{meta.root}/meta: {where}")
    times_s = start_s + np.arange(length) / meta.fps
    return index.match(times_s, tolerance_s=tolerance_s, where=where)


@functools.lru_cache(maxsize=64)
def _ends_are_last_frames(meta: LeRobotDatasetMetadata, key: str) -> bool:
    """Return whether every span of a camera ends with its last frame's time, not one later.

    LeRobot writes the time one frame past the last, and never reads it. Some converters write the
    last frame's time. That is accepted if all episodes have it.
    """
    spans_s = meta.episodes[f"videos/{key}/to_timestamp"]
    spans_s = spans_s - meta.episodes[f"videos/{key}/from_timestamp"]
    short = meta.episodes["length"] - spans_s * meta.fps
    return bool(np.all(np.abs(short - 1) < _SAME_FRAMES))
