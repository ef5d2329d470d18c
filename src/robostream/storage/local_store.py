# SPDX-License-Identifier: Apache-2.0
"""Files on a local disk."""

from __future__ import annotations

import glob
import os
import weakref
from pathlib import Path
from typing import NamedTuple

from robostream.errors import (
    AccessDeniedError,
    ChangedFileError,
    DamagedFileError,
    MissingFileError,
    StorageError,
)
from robostream.storage.byte_source import whole
from robostream.storage.location import encodable


class LocalStore:
    """A folder. Links that lie in it are followed, wherever they lead: a Hub snapshot has them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, _State] = {}

    def open(self, file: str) -> LocalSource:
        """Return the bytes of a file. Reads nothing yet."""
        return LocalSource(self._root / file, self._seen)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        # Unlike pathlib's, this follows links: chunks may lie on several disks.
        pattern = f"{glob.escape(folder)}/**/*"
        found = glob.iglob(pattern, root_dir=self._root, recursive=True)
        files = ((name, self._root / name) for name in found)
        return {name: path.stat().st_size for name, path in files if path.is_file()}


class LocalSource:
    """A file on a local disk, opened at the first read. Safe to use after a fork.

    Args:
        path: The file.
        seen: What files were when they were first opened, by name: one that is closed and opened
            again is still the same, or an error.
    """

    def __init__(self, path: str | os.PathLike[str], seen: dict[str, _State] | None = None) -> None:
        self.name = os.fspath(path)
        self.identity = self.name
        self._seen = {} if seen is None else seen
        self._handle: _Handle | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._opened().state.size

    def version(self) -> str:
        """Return when the file was last written to."""
        return str(self._opened().state.written_ns)

    def expect(self, size: int, version: str) -> None:
        """Raise unless these are the file's size and version."""
        if (self.size(), self.version()) != (size, version):
            raise self._changed()

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        handle = self._opened()
        try:
            content = os.pread(handle.fd, stop - start, start)
            if len(content) < stop - start:
                # A pread stops at 2 GiB and at a signal; only the end of the file is an error.
                parts = [content]
                while parts[-1] and (at := start + sum(map(len, parts))) < stop:
                    parts.append(os.pread(handle.fd, stop - at, at))
                content = b"".join(parts)
            # Whoever writes over a file changes its time before its bytes.
            now = _state(handle.fd)
        except OSError as error:
            raise DamagedFileError(
                f"{self.name}: bytes {start} to {stop} cannot be read: {error}. Check the disk, "
                "and copy the file again."
            ) from error
        if now != handle.state:
            raise self._changed()
        return whole(content, start, stop, self.name)

    def bring(self, start: int, stop: int) -> None:
        """Do nothing: the file is here."""

    def __getstate__(self) -> str:
        return self.name

    def __setstate__(self, name: str) -> None:
        self.__init__(name)  # type: ignore[misc]

    def _opened(self) -> _Handle:
        # No lock, which a fork could leave held: of two handles made at once, one closes itself.
        handle = self._handle
        if handle is None:
            handle = _Handle(self.name)
            if self._seen.setdefault(self.name, handle.state) != handle.state:
                raise self._changed()
            self._handle = handle
        return handle

    def _changed(self) -> ChangedFileError:
        return ChangedFileError(
            f"{self.name}: the file was changed while the dataset was being read. Begin the run "
            "anew, or read a copy that nobody changes."
        )


class _State(NamedTuple):
    """What changes when a file does."""

    size: int
    written_ns: int


def _state(fd: int) -> _State:
    found = os.fstat(fd)
    return _State(found.st_size, found.st_mtime_ns)


class _Handle:
    """An open file that closes itself once the last reader lets go of it."""

    def __init__(self, path: str) -> None:
        encodable(path)
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                f"{path}: there is no such file. Download or copy it, or check the dataset's root."
            ) from error
        except PermissionError as error:
            raise AccessDeniedError(f"{path}: {error.strerror}. Check who may read it.") from error
        except OSError as error:
            # Too many open files, say: nothing is wrong with this one.
            raise StorageError(f"{path}: cannot be opened: {error.strerror}.") from error
        weakref.finalize(self, os.close, self.fd)
        self.state = _state(self.fd)
