# SPDX-License-Identifier: Apache-2.0
"""What a recording has saved so far: counts, tasks, and the files that may take more. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.meta import CAMERA_DTYPES, DatasetInfo
from robostream.write.episode_buffer import RecordedEpisode
from robostream.write.episode_stats import NO_STATS_DTYPES, FeatureStats, column_stats
from robostream.write.file_places import OpenFile, SizeRules, data_file_for, video_file_for
from robostream.write.staging import StagedEpisode, StagedVideo


@dataclass(frozen=True, slots=True)
class SavedSoFar:
    """What a dataset holds, its saved episodes included, and the files that may take more.

    Attributes:
        tasks: The task texts in the order of their task_index.
        videos: The open file of each camera.
    """

    num_episodes: int
    num_frames: int
    tasks: tuple[str, ...]
    data: OpenFile
    videos: Mapping[str, OpenFile]

    def with_episode(
        self, episode: RecordedEpisode, *, rows_bytes: int, rules: SizeRules
    ) -> SavedSoFar:
        """Return what is saved once this episode is saved too."""
        length = episode.num_frames
        data = data_file_for(self.data, num_frames=length, rules=rules)
        videos = {}
        for key, current in self.videos.items():
            video = episode.cameras[key].video
            assert video is not None  # self.videos has only the cameras stored as video
            size, kind = video.size_bytes, video.parameters
            file = video_file_for(current, size_bytes=size, parameters=kind, rules=rules)
            videos[key] = file.with_episode(size_bytes=size, num_frames=length, parameters=kind)
        return SavedSoFar(
            self.num_episodes + 1,
            self.num_frames + length,
            tuple(dict.fromkeys([*self.tasks, *episode.tasks])),
            data.with_episode(size_bytes=rows_bytes, num_frames=length),
            videos,
        )


def all_columns(episode: RecordedEpisode, before: SavedSoFar, *, fps: float) -> dict[str, Any]:
    """Return the episode's columns, the default ones too; `before` is what was saved before it."""
    length = episode.num_frames
    frames = np.arange(length)
    known = dict.fromkeys([*before.tasks, *episode.tasks])
    numbers = {task: number for number, task in enumerate(known)}
    return {
        **episode.columns,
        # The statistics are taken in double precision; the table stores float32.
        "timestamp": frames / fps,
        "frame_index": frames,
        "episode_index": np.full(length, before.num_episodes),
        "index": before.num_frames + frames,
        "task_index": np.array([numbers[task] for task in episode.tasks]),
    }


def staged_record(
    episode: RecordedEpisode,
    columns: Mapping[str, Any],
    *,
    after: SavedSoFar,
    info: DatasetInfo,
    camera_info: dict[str, dict[str, Any]],
) -> StagedEpisode:
    """Return what is kept about a saved episode; `after` counts it too."""
    length = episode.num_frames
    return StagedEpisode(
        saved_as=after.num_episodes - 1,
        episode_index=after.num_episodes - 1,
        start_frame=after.num_frames - length,
        num_frames=length,
        tasks=list(dict.fromkeys(episode.tasks)),
        data=after.data.place,
        videos={
            key: StagedVideo(file.place, file.num_frames - length, _reorder(episode, key))
            for key, file in after.videos.items()
        },
        stats={
            name: {key: value.tolist() for key, value in entry.items()}
            for name, entry in _episode_stats(episode, columns, info).items()
        },
        camera_info=camera_info,
    )


def _reorder(episode: RecordedEpisode, key: str) -> int:
    video = episode.cameras[key].video
    return video.reorder_frames if video is not None else 0


def _episode_stats(
    episode: RecordedEpisode, columns: Mapping[str, Any], info: DatasetInfo
) -> dict[str, FeatureStats]:
    stats = {}
    for name, entry in info.features.items():
        if entry["dtype"] in CAMERA_DTYPES:
            stats[name] = episode.cameras[name].stats
        elif entry["dtype"] not in NO_STATS_DTYPES:
            stats[name] = column_stats(columns[name])
    return stats
