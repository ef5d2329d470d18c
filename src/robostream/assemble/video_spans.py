# SPDX-License-Identifier: Apache-2.0
"""The span of each episode in a camera's video file, and the frames of the file that it holds.

The episode table gives a span in seconds. A span must be as long as its episode, and the file must
have a frame at each time in it.
"""

from __future__ import annotations

import functools
import logging

import numpy as np
import numpy.typing as npt

from robostream.assemble.spec import Offsets
from robostream.decode import FrameIndex, VideoFile, packet_span
from robostream.errors import FrameTimestampError, MetadataError
from robostream.meta import EpisodeTable, LeRobotDatasetMetadata

logger = logging.getLogger(__name__)

Seconds = npt.NDArray[np.float64]

# A recorder measures the end of a span in the encoded file, whose last frame may last a bit more
# or less than 1 / fps. A whole frame too many or too few is an error.
_SLACK_FRAMES = 0.9
_SAME_FRAMES = 0.1


def match_frames(
    meta: LeRobotDatasetMetadata, index: FrameIndex, episode: int, key: str, *, tolerance_s: float
) -> npt.NDArray[np.int64]:
    """Return the number in its video file of every frame of an episode, or raise.

    Frame f has the time f / fps after the start of the episode's span. The reader of the rows
    checks their timestamps against the same times.
    """
    start_s, stop_s = (float(times_s[episode]) for times_s in _spans(meta, key))
    length = int(meta.episodes["length"][episode])
    where = f"{key}, episode {episode}"
    check_span(start_s, stop_s, length, meta.fps, f"{meta.root}/meta: {where}")
    times_s = start_s + np.arange(length) / meta.fps
    numbers = index.match(times_s, tolerance_s=tolerance_s, where=where)
    _check_file(meta, index, episode, key, tolerance_s)
    return numbers


def find_byte_span(
    file: VideoFile, numbers: npt.NDArray[np.int64], first: int, stop: int, offsets: Offsets
) -> tuple[int, int]:
    """Return the bytes of an episode's frames [first, stop) and of their windows."""
    last = len(numbers) - 1
    begin = min(max(first + int(offsets.min()), 0), last)
    end = min(max(stop - 1 + int(offsets.max()), 0), last)
    return packet_span(file.index, numbers[begin : end + 1])


def check_span(
    from_timestamp: float, to_timestamp: float, length: int, fps: float, where: str
) -> None:
    """Raise MetadataError unless the span holds `length` frames, give or take less than one. Pure.

    This finds a wrong fps, and a start or an end that is off by a frame. It cannot find a span that
    was moved as a whole. `where` names the table, the episode and the camera in the message.
    """
    seconds = to_timestamp - from_timestamp
    frames = seconds * fps
    if abs(frames - length) <= _SLACK_FRAMES:
        return
    cure = (
        "The episode table is damaged or was edited, or the video lacks frames: copy meta/ again, "
        "or leave the episode out (episodes=...)."
    )
    implied = length / seconds if seconds > 0 else 0.0
    # Some frames too many or too few are damage; a tenth of them is another rate.
    if abs(implied - fps) > 0.1 * fps and abs(implied - round(implied)) < 0.01 * implied:
        cure = f"It would fit at {round(implied)} fps: correct fps in info.json if it is wrong."
    raise MetadataError(
        f"{where}: from_timestamp {from_timestamp:.6g} s to to_timestamp {to_timestamp:.6g} s is "
        f"{frames:.6g} frames at {fps:g} fps, want the {length} of the episode. {cure}"
    )


def warn_of_overlaps(table: EpisodeTable, key: str, fps: float, where: str) -> None:
    """Log a warning if spans of episodes overlap in a camera's files."""
    order = np.argsort(files := _file_ids(table, key), kind="stable")
    order = order[table["length"][order] > 0]
    before, after = order[:-1], order[1:]
    stops_s, starts_s = table[f"videos/{key}/to_timestamp"], table[f"videos/{key}/from_timestamp"]
    is_early = starts_s[after] < stops_s[before] - _SLACK_FRAMES / fps
    overlaps = np.flatnonzero(is_early & (files[before] == files[after]))
    if overlaps.size:
        first, second = int(before[overlaps[0]]), int(after[overlaps[0]])
        more = f", and {overlaps.size - 1} more such pairs" if overlaps.size > 1 else ""
        logger.warning(
            "%s: %s: episode %d begins at %.6g s of its video file, before episode %d ends at "
            "%.6g s%s. If these episodes are not meant to share frames, the episode table is "
            "damaged: copy meta/ again.",
            *(where, key, second, starts_s[second], first, stops_s[first], more),
        )


def _check_file(
    meta: LeRobotDatasetMetadata, index: FrameIndex, episode: int, key: str, tolerance_s: float
) -> None:
    """Raise unless the file has frames from the start of its first span to the end of its last.

    A file that was cut or remuxed has its frames at other times. An episode in the middle would
    then get a frame for each of its times, but of another moment.
    """
    start_s, stop_s = (float(times_s[episode]) for times_s in _file_spans(meta, key))
    first_s, last_s = index.ends_s()
    frames_missing = (stop_s - last_s) * meta.fps - 1
    slack = max(_SLACK_FRAMES, tolerance_s * meta.fps)
    if first_s > start_s + tolerance_s or frames_missing > slack:
        raise FrameTimestampError(
            f"{key}, episode {episode}: the episode table takes frames of {index.file} from "
            f"{start_s:.6f} s to before {stop_s:.6f} s; the file has frames from {first_s:.6f} s "
            f"to {last_s:.6f} s. Some were lost or moved, and which cannot be known. Copy the "
            "video and meta/ again."
        )


@functools.lru_cache(maxsize=64)
def _file_spans(meta: LeRobotDatasetMetadata, key: str) -> tuple[Seconds, Seconds]:
    """Return for each episode when the first span in its video file starts and the last ends."""
    starts_s, stops_s = _spans(meta, key)
    # A span of another length than its episode is an error of that episode alone.
    frames = (stops_s - starts_s) * meta.fps
    is_valid = np.abs(meta.episodes["length"] - frames) <= _SLACK_FRAMES
    files, file_of = np.unique(_file_ids(meta.episodes, key), return_inverse=True)
    first_s, last_s = np.full(len(files), np.inf), np.full(len(files), -np.inf)
    np.minimum.at(first_s, file_of[is_valid], starts_s[is_valid])
    np.maximum.at(last_s, file_of[is_valid], stops_s[is_valid])
    return first_s[file_of], last_s[file_of]


@functools.lru_cache(maxsize=64)
def _spans(meta: LeRobotDatasetMetadata, key: str) -> tuple[Seconds, Seconds]:
    """Return when the span of each episode starts, and when it stops: 1 / fps after its last frame.

    LeRobot writes this time, and never reads it. Some converters write the time of the last frame,
    which is accepted if all episodes have it.
    """
    starts_s, stops_s = (meta.episodes[f"videos/{key}/{end}_timestamp"] for end in ("from", "to"))
    frames_short = meta.episodes["length"] - (stops_s - starts_s) * meta.fps
    if np.all(np.abs(frames_short - 1) < _SAME_FRAMES):
        stops_s = stops_s + 1 / meta.fps
    return starts_s, stops_s


def _file_ids(table: EpisodeTable, key: str) -> npt.NDArray[np.int64]:
    """Return a number for each episode that identifies its video file of a camera."""
    chunks = table[f"videos/{key}/chunk_index"].astype(np.int64)
    numbers: npt.NDArray[np.int64] = chunks << 32 | table[f"videos/{key}/file_index"]
    return numbers
