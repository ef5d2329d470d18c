# SPDX-License-Identifier: Apache-2.0
"""Records of saved episodes, and which numbers and files of the dataset the next episode gets."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream.errors import WriteError
from robostream.meta import (
    CAMERA_DTYPES,
    NO_STATS_DTYPES,
    DatasetInfo,
    LeRobotDatasetMetadata,
    as_lists,
    column_stats,
)
from robostream.storage import sync_to_disk, write_bytes_atomic
from robostream.write.encoder import EpisodeFile
from robostream.write.episode_buffer import RecordedEpisode
from robostream.write.staging import StagingFolder

MB = 1024 * 1024
_RECORD = "episode.json"
_WHY_BAD = "why_bad.txt"

CameraInfo = dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True, order=True)
class FilePlace:
    """The chunk and file numbers that name a file."""

    chunk: int
    file: int

    def __post_init__(self) -> None:
        if not all(isinstance(number, int) for number in (self.chunk, self.file)):
            raise TypeError(f"want whole numbers of a chunk and a file, got {self}")

    def after(self, chunks_size: int) -> FilePlace:
        """Return the next file's place; a chunk folder holds `chunks_size` files."""
        if self.file >= chunks_size - 1:
            return FilePlace(self.chunk + 1, 0)
        return FilePlace(self.chunk, self.file + 1)


@dataclass(frozen=True, slots=True)
class StagedPart:
    """The place of an episode's rows, or of a camera's video, in the file they become part of."""

    place: FilePlace
    start_frame: int  # frames of earlier episodes in that file
    reorder_frames: int  # most frames stored ahead of one that is shown earlier


@dataclass(frozen=True, slots=True)
class StagedEpisode:
    """The record of a saved episode, stored as episode.json.

    `saved_as` is the number in its folder's name; larger than `episode_index` if an earlier saved
    episode turned out to be damaged.
    """

    saved_as: int
    episode_index: int
    start_frame: int  # its first global frame index
    num_frames: int
    tasks: list[str]  # in the order of first appearance
    data: FilePlace  # the Parquet file it becomes part of
    videos: dict[str, StagedPart]
    stats: dict[str, dict[str, Any]]  # by feature and name, as nested lists
    camera_info: CameraInfo  # facts about cameras that info.json does not have yet

    @property
    def places(self) -> dict[str | None, FilePlace]:
        """The files it becomes part of, by camera; None stands for its rows."""
        return {None: self.data, **{key: video.place for key, video in self.videos.items()}}


@dataclass(frozen=True, slots=True)
class FileTotals:
    """A file that can take more episodes, with the totals of those in it."""

    place: FilePlace
    size_bytes: int = 0
    num_frames: int = 0
    parameters: str = ""  # a digest of the codec parameters, which all episodes in a video share

    def estimate_bytes(self, num_frames: int) -> float:
        """Return the size of more frames, from those in the file, as LeRobot's recorder does."""
        return self.size_bytes / self.num_frames * num_frames if self.num_frames else 0.0

    def with_file(
        self, file: EpisodeFile, *, expected_bytes: float, limit_mb: float, chunks_size: int
    ) -> FileTotals:
        """Return the file that the next episode goes to, including it: this one or the next."""
        # One is full if `expected_bytes` more reach the limit; other parameters need another file.
        own = file.size_bytes, file.num_frames
        is_full = self.size_bytes + expected_bytes >= limit_mb * MB
        if self.num_frames > 0 and (is_full or file.parameters != self.parameters):
            return FileTotals(self.place.after(chunks_size), *own, file.parameters)
        both = self.size_bytes + own[0], self.num_frames + own[1]
        return FileTotals(self.place, *both, file.parameters)


def place_files(
    current: Mapping[str | None, FileTotals],
    files: Mapping[str | None, EpisodeFile],
    info: DatasetInfo,
    *,
    guess_rows: bool = False,
) -> tuple[dict[str | None, FileTotals], dict[str | None, StagedPart]]:
    """Return the files that an episode's rows and videos go to, including them, and where. Pure."""
    # The key of rows is None. With `guess_rows`, their size is estimated from earlier episodes.
    totals: dict[str | None, FileTotals] = {}
    places: dict[str | None, StagedPart] = {}
    for key, last in current.items():
        file, is_rows = files[key], key is None
        is_guess = is_rows and guess_rows
        totals[key] = last.with_file(
            file,
            expected_bytes=last.estimate_bytes(file.num_frames) if is_guess else file.size_bytes,
            limit_mb=info.data_files_size_in_mb if is_rows else info.video_files_size_in_mb,
            chunks_size=info.chunks_size,
        )
        start_frame = totals[key].num_frames - file.num_frames
        places[key] = StagedPart(totals[key].place, start_frame, file.reorder_frames)
    return totals, places


@dataclass(frozen=True, slots=True)
class DatasetTotals:
    """What a dataset and its saved episodes hold, and the files that can take more."""

    info: DatasetInfo  # without the saved episodes
    num_episodes: int
    num_frames: int
    tasks: tuple[str, ...]  # in the order of their task_index
    files: Mapping[str | None, FileTotals]  # of each camera's videos; of the rows by None

    @classmethod
    def of_dataset(cls, meta: LeRobotDatasetMetadata) -> DatasetTotals:
        """Return the totals of a dataset without saved episodes; new ones go to new files."""
        files = {k: FileTotals(_first_new_place(meta, k)) for k in (None, *meta.video_keys)}
        counts = meta.total_episodes, meta.total_frames
        return cls(meta.info, *counts, tuple(meta.tasks), files)

    def complete_columns(self, episode: RecordedEpisode) -> dict[str, Any]:
        """Return the columns of the next episode, including those of the default features."""
        frames = np.arange(episode.num_frames)
        return {
            **episode.columns,
            # The statistics are taken in double precision; the table stores float32.
            "timestamp": frames / self.info.fps,
            "frame_index": frames,
            **counter_columns(
                episode.tasks,
                episode_index=self.num_episodes,
                start_frame=self.num_frames,
                known_tasks=add_tasks(self.tasks, episode.tasks),
            ),
        }

    def with_episode(
        self,
        episode: RecordedEpisode,
        columns: Mapping[str, Any],
        *,
        rows: EpisodeFile,
        camera_info: CameraInfo,
    ) -> tuple[DatasetTotals, StagedEpisode]:
        """Return the totals once this episode is saved, and its record."""
        parts = {None: rows} | {key: c.video for key, c in episode.cameras.items() if c.video}
        files, places = place_files(self.files, parts, self.info, guess_rows=True)
        record = StagedEpisode(
            saved_as=self.num_episodes,
            episode_index=self.num_episodes,
            start_frame=self.num_frames,
            num_frames=episode.num_frames,
            tasks=list(dict.fromkeys(episode.tasks)),
            data=places[None].place,
            videos={key: place for key, place in places.items() if key is not None},
            stats=_episode_stats(episode, columns, self.info),
            camera_info=camera_info,
        )
        counts = self.num_episodes + 1, self.num_frames + episode.num_frames
        tasks = tuple(add_tasks(self.tasks, episode.tasks))
        return DatasetTotals(self.info, *counts, tasks, files), record


def add_tasks(known: Sequence[str], more: Sequence[str]) -> list[str]:
    """Return the known tasks and then the new ones, in order of first appearance. Pure."""
    return list(dict.fromkeys([*known, *more]))


def counter_columns(
    tasks: Sequence[str], *, episode_index: int, start_frame: int, known_tasks: Sequence[str]
) -> dict[str, Any]:
    """Return the columns of an episode that depend on its number; `tasks` has one per frame."""
    task_index = {task: number for number, task in enumerate(known_tasks)}
    return {
        "episode_index": np.full(len(tasks), episode_index),
        "index": start_frame + np.arange(len(tasks)),
        "task_index": np.array([task_index[task] for task in tasks]),
    }


def commit_episode(staging: StagingFolder, record: StagedEpisode) -> None:
    """Turn the open episode into a saved one: sync all its files, then rename its folder."""
    (staging.open / _RECORD).write_text(json.dumps(asdict(record)))
    for file in staging.open.iterdir():
        sync_to_disk(file)
    sync_to_disk(staging.open)
    os.rename(staging.open, staging.episode(record.saved_as))
    sync_to_disk(staging.path)


def read_record(folder: Path) -> StagedEpisode:
    """Return the record of the saved episode in a folder; WriteError if it is damaged."""
    path = folder / _RECORD
    try:
        data = json.loads(path.read_text())
        videos = {
            key: StagedPart(**{**video, "place": FilePlace(**video["place"])})
            for key, video in data["videos"].items()
        }
        record = StagedEpisode(**{**data, "data": FilePlace(**data["data"]), "videos": videos})
    except FileNotFoundError as error:
        raise WriteError(f"{path} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WriteError(f"{path} is damaged: {error!r}") from error
    if folder.name != f"episode-{record.saved_as:06d}":
        raise WriteError(f"{path} is the record of episode {record.saved_as}")
    return record


def replace_record(folder: Path, record: StagedEpisode) -> None:
    """Replace the record of the saved episode in a folder."""
    write_bytes_atomic(folder / _RECORD, json.dumps(asdict(record)).encode())


def load_staged(staging: StagingFolder, *, first: int) -> list[StagedEpisode]:
    """Return the undamaged saved episodes; folders must be numbered from `first` without a gap."""
    folders = staging.episodes()
    if list(folders) != list(range(first, first + len(folders))):
        raise WriteError(
            f"{staging.path}: want saved episodes numbered from {first} without a gap, found "
            f"{list(folders)}. Some were deleted or not copied: restore them, or move away those "
            "after the gap, then resume again."
        )
    try:
        return [read_record(folder) for folder in folders.values() if read_damage(folder) is None]
    except WriteError as error:
        raise WriteError(
            f"{error}. Resume the dataset: this moves the damaged episode to "
            f"{staging.bad_episodes.name}/ and keeps the others."
        ) from error


def read_damage(folder: Path) -> str | None:
    """Return why the saved episode in a folder is marked as damaged, or None if it is not."""
    path = folder / _WHY_BAD
    return path.read_text() if path.exists() else None


def mark_damaged(folder: Path, reason: str) -> None:
    """Mark the saved episode in a folder as damaged; it no longer counts."""
    write_bytes_atomic(folder / _WHY_BAD, reason.encode(errors="backslashreplace"))


def _first_new_place(meta: LeRobotDatasetMetadata, camera: str | None) -> FilePlace:
    """Return the place after the last file that the episode table names for rows or a camera."""
    if len(meta.episodes) == 0:
        return FilePlace(0, 0)
    prefix = "data" if camera is None else f"videos/{camera}"
    chunks, files = (meta.episodes[f"{prefix}/{name}_index"] for name in ("chunk", "file"))
    last = chunks.max()
    return FilePlace(int(last), int(files[chunks == last].max())).after(meta.chunks_size)


def _episode_stats(
    episode: RecordedEpisode, columns: Mapping[str, Any], info: DatasetInfo
) -> dict[str, dict[str, Any]]:
    stats = {}
    for name, entry in info.features.items():
        if entry["dtype"] in CAMERA_DTYPES:
            stats[name] = as_lists(episode.cameras[name].stats)
        elif entry["dtype"] not in NO_STATS_DTYPES:
            stats[name] = as_lists(column_stats(columns[name]))
    return stats
