# SPDX-License-Identifier: Apache-2.0
"""An episode recorded apart from its dataset, in another process say, to be saved later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream.errors import FrameError
from robostream.meta import DatasetInfo, depth_unit
from robostream.write.episode_buffer import EpisodeBuffer, RecordedEpisode, RecordingOptions
from robostream.write.frame_check import CheckedFrame, check_frame


@dataclass(frozen=True, slots=True)
class EpisodeApart:
    """An episode whose number nobody knows yet.

    Attributes:
        folder: Where its videos lie.
        depth_units: By depth camera, the unit of its distances.
    """

    folder: Path
    episode: RecordedEpisode
    depth_units: dict[str, str]


def record_apart(
    folder: Path, info: DatasetInfo, options: RecordingOptions, frames: Iterable[Mapping[str, Any]]
) -> EpisodeApart:
    """Return the episode of some frames, its videos in `folder`; `DatasetWriter.save_apart` next.

    Raises:
        FrameError: Listing every fault of a frame, or saying that there is none.
    """
    buffer = EpisodeBuffer(folder, info, options)
    units: dict[str, str] = {}
    try:
        for number, frame in enumerate(frames):
            where = f"frame {number} of an episode in {folder}"
            checked = check_frame(frame, info.features, depth_units=units, where=where)
            buffer.add(checked)
            units |= depth_units_of(checked, info, known=units)
        episode = buffer.finish() if buffer.num_frames else None
    except BaseException:
        buffer.discard()
        raise
    if episode is None:
        raise FrameError(f"{folder}: want an episode of one frame or more, found none")
    return EpisodeApart(folder, episode, units)


def depth_units_of(
    frame: CheckedFrame, info: DatasetInfo, *, known: Mapping[str, str]
) -> dict[str, str]:
    """Return the units of the depth cameras whose unit is not known yet. Pure."""
    unknown = (key for key in info.depth_keys if key not in known)
    return {key: depth_unit(frame.values[key].dtype) for key in unknown}
