# SPDX-License-Identifier: Apache-2.0
"""The staging folder: each saved episode as a folder of its own until finalize() joins them.

    .recording/
      lock               held by the writer
      open/              the episode being recorded
      episode-000012/    a saved episode: rows.parquet, one MP4 per camera, episode.json
      aside/             files being joined
      ready/             joined files, whole, at their path in the dataset
      publish/           what ready/ is called once everything is in it; being moved into place
    .bad-episodes/
      episode-000007/    a saved episode that resume could not use, with the reason in why_bad.txt

Every step ends with one rename. So if the writer is killed, each step is done or not done:

- `open` becomes `episode-N` when all its files are on disk: the episode is saved.
- A file appears in `ready` when it is whole. The parts it was joined from are then deleted.
- `ready` becomes `publish` when everything is in it, the metadata too. From then on files are only
  moved into the dataset, info.json last. The next writer can go on with that at any point.
- A bad episode gets its why_bad.txt, and from then on it does not count. When the others are in the
  dataset, its folder is moved out of `.recording`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robostream import config
from robostream.errors import WriteError
from robostream.storage import check_relative_path, sync_to_disk, write_bytes_atomic
from robostream.write.file_places import FilePlace

_ROWS = "rows.parquet"
_RECORD = "episode.json"
_WHY_BAD = "why_bad.txt"
_EPISODE = re.compile(r"episode-(\d+)")


@dataclass(frozen=True, slots=True)
class StagedVideo:
    """One camera's video of a saved episode, and where in which file it will be.

    Attributes:
        place: The MP4 it goes to.
        start_frame: Frames of earlier episodes in that file.
        reorder_frames: How many frames at most are stored ahead of one that is shown earlier.
    """

    place: FilePlace
    start_frame: int
    reorder_frames: int


@dataclass(frozen=True, slots=True)
class StagedEpisode:
    """Everything about a saved episode that its rows and videos do not say.

    Attributes:
        saved_as: The number in its folder's name. Its `episode_index` is smaller if an episode
            before it was set aside.
        start_frame: Its first global frame index.
        tasks: Its task texts, in the order of first appearance.
        data: The Parquet file it goes to.
        stats: Its statistics, by feature and name, as nested lists.
        camera_info: What info.json does not know about a camera yet.
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
        self.aside = self.path / "aside"
        self.ready = self.path / "ready"
        self.publish = self.path / "publish"
        self.bad_episodes = root / ".bad-episodes"

    def episode(self, saved_as: int) -> Path:
        """Return the folder of a saved episode."""
        return self.path / f"episode-{saved_as:06d}"

    def episodes(self) -> dict[int, Path]:
        """Return the folders of all saved episodes, the bad ones too, by number and in order."""
        matches = [(_EPISODE.fullmatch(folder.name), folder) for folder in self.path.iterdir()]
        return dict(sorted((int(match[1]), folder) for match, folder in matches if match))

    def clean(self) -> None:
        """Remove what an interrupted writer left unfinished."""
        remove_folder(self.open)
        remove_folder(self.aside)
        remove_files(list((self.root / "meta").glob(".*.part")))


def rows_path(episode_folder: Path) -> Path:
    """Return the Parquet file of an episode's rows."""
    return episode_folder / _ROWS


def video_path(episode_folder: Path, camera: str) -> Path:
    """Return the MP4 of an episode's camera."""
    return episode_folder / check_relative_path(f"{camera}.mp4")


def commit_episode(staging: StagingFolder, record: StagedEpisode) -> None:
    """Make the open episode a saved one: all its files on disk, then one rename."""
    (staging.open / _RECORD).write_text(json.dumps(asdict(record)))
    for file in staging.open.iterdir():
        sync_to_disk(file)
    sync_to_disk(staging.open)
    os.rename(staging.open, staging.episode(record.saved_as))
    sync_to_disk(staging.path)


def read_record(folder: Path) -> StagedEpisode:
    """Return what is kept about the saved episode in a folder; WriteError if it is damaged."""
    path = folder / _RECORD
    try:
        record = _parse(json.loads(path.read_text()))
    except FileNotFoundError as error:
        raise WriteError(f"{path} is missing") from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise WriteError(f"{path} is damaged: {error!r}") from error
    if folder.name != f"episode-{record.saved_as:06d}":
        raise WriteError(f"{path} is the record of episode {record.saved_as}")
    return record


def replace_record(folder: Path, record: StagedEpisode) -> None:
    """Change what is kept about the saved episode in a folder."""
    write_bytes_atomic(folder / _RECORD, json.dumps(asdict(record)).encode())


def load_staged(staging: StagingFolder, *, first: int) -> list[StagedEpisode]:
    """Return the saved episodes that are not bad; all must be numbered from `first`, no gap."""
    folders = staging.episodes()
    if list(folders) != list(range(first, first + len(folders))):
        raise WriteError(
            f"{staging.path}: want saved episodes numbered from {first} without a gap, found "
            f"{list(folders)}. Somebody deleted some, or copied only a part of the folder: bring "
            "the missing ones back, or move away those after the gap, then resume again."
        )
    try:
        return [read_record(folder) for folder in folders.values() if why_bad(folder) is None]
    except WriteError as error:
        raise WriteError(
            f"{error}. Resume the dataset: that sets this episode aside and keeps the others."
        ) from error


def why_bad(folder: Path) -> str | None:
    """Return why the saved episode in a folder is bad, or None if it was not marked as bad."""
    path = folder / _WHY_BAD
    return path.read_text() if path.exists() else None


def mark_bad(folder: Path, why: str) -> None:
    """Mark the saved episode in a folder as bad: from now on it does not count."""
    write_bytes_atomic(folder / _WHY_BAD, why.encode(errors="backslashreplace"))


def place_whole(source: Path, target: Path) -> None:
    """Move a finished file to its place: wait until it is on disk, then rename it."""
    sync_to_disk(source)
    make_folder(target.parent)
    os.replace(source, target)
    sync_to_disk(target.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, and wait until each of them is on disk."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_to_disk(folder.parent)


def remove_folder(folder: Path) -> None:
    """Delete a folder and all in it, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)


def remove_files(files: Sequence[Path]) -> None:
    """Delete files that may be gone already."""
    for file in files:
        file.unlink(missing_ok=True)


def _parse(data: dict[str, Any]) -> StagedEpisode:
    videos = {
        key: StagedVideo(**{**video, "place": FilePlace(**video["place"])})
        for key, video in data["videos"].items()
    }
    places = {"data": FilePlace(**data["data"]), "videos": videos}
    # Recordings begun by an earlier version have no `saved_as`.
    return StagedEpisode(**{"saved_as": data["episode_index"], **data, **places})
