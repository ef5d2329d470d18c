# SPDX-License-Identifier: Apache-2.0
"""Where episodes lie in video files, as the episode table has it, in seconds."""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt

from robostream.errors import MetadataError
from robostream.meta.episodes import EpisodeTable

logger = logging.getLogger(__name__)

# A recorder measures the end of a span in the encoded file, whose last frame may last a bit more
# or less than 1 / fps. A whole frame too many or too few is an error.
SLACK_FRAMES = 0.9


def check_span(
    from_timestamp: float, to_timestamp: float, length: int, fps: float, where: str
) -> None:
    """Raise MetadataError unless the span holds `length` frames, give or take less than one. Pure.

    This is all the episode table alone can tell. It finds a wrong fps, and a start or an end that
    is off by a frame; not a span that was moved as a whole.

    Args:
        from_timestamp: The column videos/<camera>/from_timestamp, seconds in the file.
        to_timestamp: The column videos/<camera>/to_timestamp; the end is excluded.
        length: The episode's frames.
        fps: Frames per second.
        where: The episode table's file, the episode and the camera, for the message.
    """
    frames = (to_timestamp - from_timestamp) * fps
    if abs(frames - length) <= SLACK_FRAMES:
        return
    raise MetadataError(
        f"{where}: from_timestamp {from_timestamp:.6g} s to to_timestamp {to_timestamp:.6g} s is "
        f"{frames:.6g} frames at {fps:g} fps, want the {length} of the episode. "
        f"{_cure(to_timestamp - from_timestamp, length, fps)}"
    )


def files_of(table: EpisodeTable, key: str) -> npt.NDArray[np.int64]:
    """Return a number for each episode that is another for each video file of a camera. Pure."""
    chunks = table[f"videos/{key}/chunk_index"].astype(np.int64)
    numbers: npt.NDArray[np.int64] = chunks << 32 | table[f"videos/{key}/file_index"]
    return numbers


def warn_of_overlaps(table: EpisodeTable, key: str, fps: float, where: str) -> None:
    """Say if episodes do not follow one another in a camera's files. They are read as they say."""
    order = np.argsort(files := files_of(table, key), kind="stable")
    order = order[table["length"][order] > 0]
    before, after = order[:-1], order[1:]
    stops_s, starts_s = table[f"videos/{key}/to_timestamp"], table[f"videos/{key}/from_timestamp"]
    early = starts_s[after] < stops_s[before] - SLACK_FRAMES / fps
    odd = np.flatnonzero(early & (files[before] == files[after]))
    if odd.size:
        first, second = int(before[odd[0]]), int(after[odd[0]])
        logger.warning(
            "%s: %s: episode %d begins at %.6g s of its video file, before episode %d ends at "
            "%.6g s%s. If these episodes are not meant to share pictures, the episode table is "
            "damaged: copy meta/ again.",
            where,
            key,
            second,
            starts_s[second],
            first,
            stops_s[first],
            f", and {odd.size - 1} more such pairs" if odd.size > 1 else "",
        )


def _cure(seconds: float, length: int, fps: float) -> str:
    implied = length / seconds if seconds > 0 else 0.0
    # A few frames are missing or too many; a tenth of them is another rate.
    if abs(implied - fps) > 0.1 * fps and abs(implied - round(implied)) < 0.01 * implied:
        return f"It would fit at {round(implied)} fps: correct fps in info.json if it is wrong."
    return (
        "The episode table is damaged or was edited, or the video lacks frames: copy meta/ again, "
        "or leave the episode out (episodes=...)."
    )
