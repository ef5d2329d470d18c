# SPDX-License-Identifier: Apache-2.0
"""The staging folder: each saved episode has a folder of its own until finalize() joins them.

    .recording/
      lock               held by the writer
      open/              the episode being recorded
      episode-000012/    a saved episode: rows.parquet, one MP4 per camera, episode.json
      aside/             temporary files, still being written
      ready/             complete joined files, at their path in the dataset
      publish/           ready/ after a rename: its files are being moved into the dataset
    .bad-episodes/
      episode-000007/    a damaged episode that resume could not use; why_bad.txt has the reason

Every step ends with one rename, so a kill leaves each step either done or not done:

- `open` becomes `episode-N` when all its files are on disk: the episode is saved.
- A complete file moves from `aside` to `ready`. The parts it was joined from are then deleted.
- `ready` becomes `publish` when it holds everything, including the metadata. After that, files only
  move into the dataset, info.json last. The next writer can continue at any point.
- A damaged episode gets a why_bad.txt and no longer counts. Once the others are in the dataset, its
  folder moves out of `.recording`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robostream import config
from robostream.errors import WriteError
from robostream.storage import check_relative_path, sync_to_disk, write_bytes_atomic

_RECORD = "episode.json"
_WHY_BAD = "why_bad.txt"
_EPISODE = re.compile(r"episode-(\d+)")


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
class StagedVideo:
    """Where one camera's video of a saved episode goes.

    Attributes:
        place: The MP4 it becomes part of.
        start_frame: Frames of earlier episodes in that file.
        reorder_frames: Most frames stored ahead of one that is shown earlier.
    """

    place: FilePlace
    start_frame: int
    reorder_frames: int


@dataclass(frozen=True, slots=True)
class StagedEpisode:
    """The record of a saved episode, stored as episode.json.

    Attributes:
        saved_as: The number in its folder's name; larger than `episode_index` if an earlier
            saved episode turned out to be damaged.
        start_frame: Its first global frame index.
        tasks: Its task texts, in the order of first appearance.
        data: The Parquet file it becomes part of.
        stats: Its statistics, by feature and name, as nested lists.
        camera_info: Facts about cameras that info.json does not have yet.
    """

    saved_as: int
    episode_index: int
    start_frame: int
    num_frames: int
    tasks: list[str]
    data: FilePlace
    videos: dict[str, StagedVideo]
    stats: dict[str, dict[str, Any]]
    camera_info: dict[str, dict[str, Any]]


class StagingFolder:
    """The paths inside a dataset's staging folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.path = root / config.STAGING_FOLDER
        self.open = self.path / "open"
        self.temp = self.path / "aside"
        self.ready = self.path / "ready"
        self.publish = self.path / "publish"
        self.bad_episodes = root / ".bad-episodes"

    def episode(self, saved_as: int) -> Path:
        """Return the folder of a saved episode."""
        return self.path / f"episode-{saved_as:06d}"

    def episodes(self) -> dict[int, Path]:
        """Return the folders of all saved episodes, damaged ones too, by number and in order."""
        matches = [(_EPISODE.fullmatch(folder.name), folder) for folder in self.path.iterdir()]
        return dict(sorted((int(match[1]), folder) for match, folder in matches if match))

    def temp_path(self, target: Path) -> Path:
        """Return where to write a file that `move_durably` then moves to `target`."""
        self.temp.mkdir(parents=True, exist_ok=True)
        return self.temp / target.relative_to(self.path).as_posix().replace("/", "+")

    def clean(self) -> None:
        """Remove unfinished files of an interrupted writer."""
        remove_folder(self.open)
        remove_folder(self.temp)
        for file in (self.root / "meta").glob(".*.part"):
            file.unlink(missing_ok=True)


def rows_path(episode_folder: Path) -> Path:
    """Return the Parquet file of an episode's rows."""
    return episode_folder / "rows.parquet"


def video_path(episode_folder: Path, camera: str) -> Path:
    """Return the MP4 of an episode's camera."""
    return episode_folder / check_relative_path(f"{camera}.mp4")


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
        record = _parse_record(json.loads(path.read_text()))
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


def move_durably(source: Path, target: Path) -> None:
    """Sync a finished file to disk, then rename it to `target`."""
    sync_to_disk(source)
    make_folder(target.parent)
    os.replace(source, target)
    sync_to_disk(target.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and sync each of them to disk."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_to_disk(folder.parent)


def remove_folder(folder: Path) -> None:
    """Delete a folder and its contents, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)


def _parse_record(data: dict[str, Any]) -> StagedEpisode:
    videos = {
        key: StagedVideo(**{**video, "place": FilePlace(**video["place"])})
        for key, video in data["videos"].items()
    }
    places = {"data": FilePlace(**data["data"]), "videos": videos}
    # Recordings begun by an earlier version have no `saved_as`.
    return StagedEpisode(**{"saved_as": data["episode_index"], **data, **places})
