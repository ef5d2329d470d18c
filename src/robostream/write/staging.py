# SPDX-License-Identifier: Apache-2.0
"""The staging folder, in which saved episodes wait for finalize(), and the writer's lock.

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

import contextlib
import fcntl
import os
import re
import shutil
from pathlib import Path

from robostream import config
from robostream.errors import WriteError
from robostream.storage import check_relative_path, sync_to_disk

_EPISODE = re.compile(r"episode-(\d+)")


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


class WriterLock:
    """The only writer's lock on a dataset; the system releases it even if the writer is killed."""

    def __init__(self, staging: Path) -> None:
        self._path = staging / "lock"
        self._process = os.getpid()
        self._fd = _acquire(self._path)

    @property
    def is_mine(self) -> bool:
        """Whether this process took the lock; a forked child only has a copy of it."""
        return os.getpid() == self._process

    def release(self) -> None:
        """Release the lock, and remove the staging folder if it is empty."""
        if self._fd < 0:
            return
        if self.is_mine:
            # Deleted while the lock is held. Another process may have opened the file already; once
            # it gets the lock, it notices the deletion and starts again.
            self._path.unlink(missing_ok=True)
            if not any(self._path.parent.iterdir()):
                self._path.parent.rmdir()
        self._close()

    def drop(self) -> None:
        """Release the lock as far as possible, without raising OSError."""
        with contextlib.suppress(OSError):
            self.release()
        self._close()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def part_path(episode_folder: Path, camera: str | None) -> Path:
    """Return the MP4 of an episode's camera, or the Parquet file of its rows."""
    name = "rows.parquet" if camera is None else check_relative_path(f"{camera}.mp4")
    return episode_folder / name


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


def _acquire(path: Path) -> int:
    """Return the locked file's descriptor, or raise WriteError if another writer has the lock."""
    this_process = f"process {os.getpid()} on {os.uname().nodename}"
    while True:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the last holder removed the folder in the meantime
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(fd, 1000).decode(errors="replace")
            os.close(fd)
            message = (
                f"this process ({holder}) has a writer open on this dataset already. Call its "
                "finalize(), or delete the last reference to it, then try again. After an error, "
                "the traceback may hold such a reference; a new process can always resume."
                if holder == this_process
                else f"another writer ({holder or 'unknown process'}) is recording into this "
                "dataset. Wait until it has called finalize(), or stop it, then try again."
            )
            raise WriteError(f"{path.parent.parent}: {message}") from error
        # The last holder may have deleted the file before this process got the lock.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), path.stat()):
                os.ftruncate(fd, 0)
                os.write(fd, this_process.encode())
                return fd
        os.close(fd)
