# SPDX-License-Identifier: Apache-2.0
"""The staging folder: each saved episode as a folder of its own until finalize() joins them.

    .recording/
      lock               held by the writer
      open/              the episode being recorded
      episode-000012/    a saved episode: rows.parquet, one MP4 per camera, episode.json
      aside/             files being joined
      ready/             joined files, whole, at their path in the dataset
      publish/           what ready/ is called once everything is in it; being moved into place

Every step ends in one rename, so a killed writer leaves each thing done or not done:

- `open` becomes `episode-N` when all its files are on disk: the episode is saved.
- A file appears in `ready` when it is whole. Its episodes' parts are then superfluous.
- `ready` becomes `publish` when it holds everything, the metadata too: the recording is decided.
  From then on the files are only moved, info.json last, and moving can be taken up anywhere.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from robostream import config
from robostream.errors import WriteError
from robostream.meta import sync_folder
from robostream.write.file_places import FilePlace

_ROWS = "rows.parquet"
_RECORD = "episode.json"
_PREFIX = "episode-"


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
        start_frame: Its first global frame index.
        tasks: Its task texts, in the order of first appearance.
        data: The Parquet file it goes to.
        stats: Its statistics, by feature and name, as nested lists.
        camera_info: What info.json does not know about a camera yet.
    """

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

    def episode(self, episode_index: int) -> Path:
        """Return the folder of a saved episode."""
        return self.path / f"{_PREFIX}{episode_index:06d}"

    def episodes(self) -> list[Path]:
        """Return the folders of all saved episodes, in order."""
        found = [p for p in self.path.iterdir() if p.name.startswith(_PREFIX)]
        return sorted(found, key=lambda folder: int(folder.name.removeprefix(_PREFIX)))

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
    return episode_folder / f"{camera}.mp4"


def commit_episode(staging: StagingFolder, record: StagedEpisode) -> None:
    """Make the open episode a saved one: all its files on disk, then one rename."""
    (staging.open / _RECORD).write_text(json.dumps(asdict(record)))
    for file in staging.open.iterdir():
        sync_file(file)
    sync_folder(staging.open)
    os.rename(staging.open, staging.episode(record.episode_index))
    sync_folder(staging.path)


def load_staged(staging: StagingFolder, *, first: int) -> list[StagedEpisode]:
    """Return the saved episodes, which must be numbered from `first` without a gap."""
    records = [_parse((folder / _RECORD).read_text()) for folder in staging.episodes()]
    found = [record.episode_index for record in records]
    if found != list(range(first, first + len(found))):
        raise WriteError(
            f"{staging.path}: want saved episodes numbered from {first}, found {found}. The folder "
            "was changed by hand, or copied in part: restore the missing ones, or move away those "
            "after the gap, then resume again."
        )
    return records


def place_whole(source: Path, target: Path) -> None:
    """Move a finished file to where it counts as whole: on disk first, then one rename."""
    sync_file(source)
    make_folder(target.parent)
    os.replace(source, target)
    sync_folder(target.parent)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents, each of them on disk before the next."""
    if not folder.exists():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def sync_file(path: Path) -> None:
    """Wait until a file's content is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_folder(folder: Path) -> None:
    """Delete a folder and all in it, if it exists."""
    if folder.exists():
        shutil.rmtree(folder)


def remove_files(files: Sequence[Path]) -> None:
    """Delete files that may be gone already."""
    for file in files:
        file.unlink(missing_ok=True)


def _parse(text: str) -> StagedEpisode:
    data = json.loads(text)
    videos = {
        key: StagedVideo(**{**video, "place": FilePlace(**video["place"])})
        for key, video in data["videos"].items()
    }
    return StagedEpisode(**{**data, "data": FilePlace(**data["data"]), "videos": videos})
