# SPDX-License-Identifier: Apache-2.0
"""The state of a recording: counts, tasks, and the files that the next episode goes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.meta import CAMERA_DTYPES, DatasetInfo, LeRobotDatasetMetadata
from robostream.write.episode_buffer import RecordedEpisode
from robostream.write.episode_stats import NO_STATS_DTYPES, FeatureStats, column_stats
from robostream.write.staging import FilePlace, StagedEpisode, StagedVideo

MB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file that can take more episodes, with the totals of those in it.

    Attributes:
        parameters: A digest of the codec parameters, which all episodes in a video share.
    """

    place: FilePlace
    size_bytes: int = 0
    num_frames: int = 0
    parameters: str = ""

    def with_episode(self, *, size_bytes: int, num_frames: int, parameters: str = "") -> OpenFile:
        """Return the file with one more episode in it."""
        return OpenFile(
            self.place, self.size_bytes + size_bytes, self.num_frames + num_frames, parameters
        )


def data_file_for(current: OpenFile, *, num_frames: int, info: DatasetInfo) -> OpenFile:
    """Return the Parquet file an episode of `num_frames` goes to: `current`, or an empty next one.

    The episode's size is estimated from the frames in the file, as LeRobot's recorder does.
    """
    if current.num_frames == 0:
        return current
    estimate = current.size_bytes / current.num_frames * num_frames
    if current.size_bytes + estimate >= info.data_files_size_in_mb * MB:
        return OpenFile(current.place.after(info.chunks_size))
    return current


def video_file_for(
    current: OpenFile, *, size_bytes: int, parameters: str, info: DatasetInfo
) -> OpenFile:
    """Return the MP4 an episode's video goes to: `current`, or an empty next one.

    Videos with different codec parameters never share a file.
    """
    if current.num_frames == 0:
        return current
    is_full = current.size_bytes + size_bytes >= info.video_files_size_in_mb * MB
    if is_full or parameters != current.parameters:
        return OpenFile(current.place.after(info.chunks_size))
    return current


@dataclass(frozen=True, slots=True)
class Progress:
    """What a dataset and its saved episodes hold, and the files that can take more.

    Attributes:
        info: The dataset's info.json, without the saved episodes.
        tasks: The task texts in the order of their task_index.
        videos: The open file of each camera that is stored as video.
    """

    info: DatasetInfo
    num_episodes: int
    num_frames: int
    tasks: tuple[str, ...]
    data: OpenFile
    videos: Mapping[str, OpenFile]

    @classmethod
    def of_dataset(cls, meta: LeRobotDatasetMetadata) -> Progress:
        """Return the progress of a dataset without saved episodes; new ones go to new files."""
        return cls(
            info=meta.info,
            num_episodes=meta.total_episodes,
            num_frames=meta.total_frames,
            tasks=tuple(meta.tasks),
            data=OpenFile(_first_new_place(meta, "data")),
            videos={k: OpenFile(_first_new_place(meta, f"videos/{k}")) for k in meta.video_keys},
        )

    def with_episode(self, episode: RecordedEpisode, *, rows_bytes: int) -> Progress:
        """Return the progress once this episode is saved."""
        length = episode.num_frames
        data = data_file_for(self.data, num_frames=length, info=self.info)
        videos = {}
        for key, current in self.videos.items():
            video = episode.cameras[key].video
            assert video is not None  # self.videos has only cameras stored as video
            size, kind = video.size_bytes, video.parameters
            file = video_file_for(current, size_bytes=size, parameters=kind, info=self.info)
            videos[key] = file.with_episode(size_bytes=size, num_frames=length, parameters=kind)
        return Progress(
            self.info,
            self.num_episodes + 1,
            self.num_frames + length,
            tuple(dict.fromkeys([*self.tasks, *episode.tasks])),
            data.with_episode(size_bytes=rows_bytes, num_frames=length),
            videos,
        )


def complete_columns(episode: RecordedEpisode, before: Progress) -> dict[str, Any]:
    """Return the columns of the next episode, including those of the default features."""
    length = episode.num_frames
    frames = np.arange(length)
    known = dict.fromkeys([*before.tasks, *episode.tasks])
    numbers = {task: number for number, task in enumerate(known)}
    return {
        **episode.columns,
        # The statistics are taken in double precision; the table stores float32.
        "timestamp": frames / before.info.fps,
        "frame_index": frames,
        "episode_index": np.full(length, before.num_episodes),
        "index": before.num_frames + frames,
        "task_index": np.array([numbers[task] for task in episode.tasks]),
    }


def make_record(
    episode: RecordedEpisode,
    columns: Mapping[str, Any],
    *,
    after: Progress,
    camera_info: dict[str, dict[str, Any]],
) -> StagedEpisode:
    """Return the record of a saved episode; `after` already counts the episode."""
    length = episode.num_frames
    videos = {}
    for key, file in after.videos.items():
        video = episode.cameras[key].video
        assert video is not None
        start_frame = file.num_frames - length
        videos[key] = StagedVideo(file.place, start_frame, video.reorder_frames)
    return StagedEpisode(
        saved_as=after.num_episodes - 1,
        episode_index=after.num_episodes - 1,
        start_frame=after.num_frames - length,
        num_frames=length,
        tasks=list(dict.fromkeys(episode.tasks)),
        data=after.data.place,
        videos=videos,
        stats={
            name: {key: value.tolist() for key, value in entry.items()}
            for name, entry in _episode_stats(episode, columns, after.info).items()
        },
        camera_info=camera_info,
    )


def _first_new_place(meta: LeRobotDatasetMetadata, prefix: str) -> FilePlace:
    """Return the place after the last file that the episode table names for rows or a camera."""
    if len(meta.episodes) == 0:
        return FilePlace(0, 0)
    chunks = meta.episodes[f"{prefix}/chunk_index"]
    files = meta.episodes[f"{prefix}/file_index"]
    last_chunk = chunks.max()
    last = FilePlace(int(last_chunk), int(files[chunks == last_chunk].max()))
    return last.after(meta.chunks_size)


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
