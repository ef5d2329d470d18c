# SPDX-License-Identifier: Apache-2.0
"""Where an episode's pictures lie in the video files."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.windows import Offsets
from robostream.decode import FrameIndex, VideoFile, VideoFiles, packet_span
from robostream.errors import FrameTimestampError
from robostream.meta import SLACK_FRAMES, LeRobotDatasetMetadata, check_span, files_of

_SAME_FRAMES = 0.1


def find_frames(
    dataset: OpenedDataset, files: VideoFiles, episode: int, key: str
) -> tuple[VideoFile, npt.NDArray[np.int64]]:
    """Return a camera's video file of an episode, and the number in it of every picture."""
    meta = dataset.meta
    file = files.get(meta.get_video_file_path(episode, key).as_posix())
    tolerance_s = dataset.spec.tolerance_s
    return file, match_frames(meta, file.index, episode, key, tolerance_s=tolerance_s)


def find_byte_span(
    file: VideoFile, numbers: npt.NDArray[np.int64], first: int, stop: int, offsets: Offsets
) -> tuple[int, int]:
    """Return the bytes of an episode's frames [first, stop), and of their windows."""
    last = len(numbers) - 1
    begin = min(max(first + int(offsets.min()), 0), last)
    end = min(max(stop - 1 + int(offsets.max()), 0), last)
    return packet_span(file.index, numbers[begin : end + 1])


def match_frames(
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
    numbers = index.match(times_s, tolerance_s=tolerance_s, where=where)
    _check_file(meta, index, episode, key, tolerance_s)
    return numbers


def _check_file(
    meta: LeRobotDatasetMetadata, index: FrameIndex, episode: int, key: str, tolerance_s: float
) -> None:
    """Raise unless the file has pictures from its first episode's begin to its last one's end.

    One that was cut or remuxed since it was recorded has them at other times. An episode in its
    middle then finds pictures at all of its times, but another frame's.
    """
    start_s, stop_s = (float(times_s[episode]) for times_s in _file_spans(meta, key))
    first_s, last_s = index.ends_s()
    frames_missing = (stop_s - last_s) * meta.fps - 1
    slack = max(SLACK_FRAMES, tolerance_s * meta.fps)
    if first_s > start_s + tolerance_s or frames_missing > slack:
        raise FrameTimestampError(
            f"{key}, episode {episode}: the episodes in {index.file} take its pictures from "
            f"{start_s:.6f} s to before {stop_s:.6f} s, says the episode table; the file has them "
            f"from {first_s:.6f} s to {last_s:.6f} s. Some were lost or moved, and which cannot be "
            "told. Copy the video and meta/ again."
        )


@functools.lru_cache(maxsize=64)
def _file_spans(
    meta: LeRobotDatasetMetadata, key: str
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return for each episode where the first one in its video file begins, and the last ends."""
    table, short = meta.episodes, _frames_short(meta, key)
    stops_s = table[f"videos/{key}/to_timestamp"]
    if _ends_are_last_frames(meta, key):
        short, stops_s = short - 1, stops_s + 1 / meta.fps
    # A span that is not as long as its episode is that episode's fault, and no other's.
    used = np.abs(short) <= SLACK_FRAMES
    files, file_of = np.unique(files_of(table, key), return_inverse=True)
    first_s, last_s = np.full(len(files), np.inf), np.full(len(files), -np.inf)
    np.minimum.at(first_s, file_of[used], table[f"videos/{key}/from_timestamp"][used])
    np.maximum.at(last_s, file_of[used], stops_s[used])
    return first_s[file_of], last_s[file_of]


@functools.lru_cache(maxsize=64)
def _ends_are_last_frames(meta: LeRobotDatasetMetadata, key: str) -> bool:
    """Return whether every span of a camera ends with its last frame's time, not one later.

    LeRobot writes the time one frame past the last, and never reads it. Some converters write the
    last frame's time. That is accepted if all episodes have it.
    """
    return bool(np.all(np.abs(_frames_short(meta, key) - 1) < _SAME_FRAMES))


def _frames_short(meta: LeRobotDatasetMetadata, key: str) -> npt.NDArray[np.float64]:
    """Return how many frames more each episode has than its span of a camera's file takes."""
    starts_s, stops_s = (meta.episodes[f"videos/{key}/{end}_timestamp"] for end in ("from", "to"))
    short: npt.NDArray[np.float64] = meta.episodes["length"] - (stops_s - starts_s) * meta.fps
    return short
