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
from robostream.storage.byte_source import ByteSource, check_length
from robostream.storage.location import check_encodable


class LocalStore:
    """A folder. Symbolic links in it are followed: Hub snapshots consist of them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._seen: dict[str, _FileState] = {}

    def open(self, file: str) -> LocalSource:
        """Return a file. Reads nothing yet."""
        return LocalSource(self._root / file, self._seen)

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder."""
        # Unlike pathlib, glob follows links: chunks may lie on several disks.
        pattern = f"{glob.escape(folder)}/**/*"
        found = glob.iglob(pattern, root_dir=self._root, recursive=True)
        files = ((name, self._root / name) for name in found)
        return {name: path.stat().st_size for name, path in files if path.is_file()}


class LocalSource(ByteSource):
    """A local file, opened at the first read. Safe to use after a fork.

    Args:
        path: The file.
        seen: The state of each file when it was first opened, by name. A file that has changed
            when it is opened again raises ChangedFileError.
    """

    def __init__(
        self, path: str | os.PathLike[str], seen: dict[str, _FileState] | None = None
    ) -> None:
        self.name = os.fspath(path)
        self.identity = self.name
        self._seen = {} if seen is None else seen
        self._file: _LocalHandle | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._open().state.size

    def version(self) -> str:
        """Return the time of the last write."""
        return str(self._open().state.written_ns)

    def expect(self, size: int, version: str) -> None:
        """Raise unless the file has this size and version."""
        if (self.size(), self.version()) != (size, version):
            raise self._changed()

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        file = self._open()
        try:
            content = os.pread(file.fd, stop - start, start)
            if len(content) < stop - start:
                # pread stops at 2 GiB and at a signal; only the end of the file is an error.
                parts = [content]
                while parts[-1] and (at := start + sum(map(len, parts))) < stop:
                    parts.append(os.pread(file.fd, stop - at, at))
                content = b"".join(parts)
            # A writer changes the file's time before its bytes.
            now = _file_state(file.fd)
        except OSError as error:
            raise DamagedFileError(
                f"{self.name}: bytes {start} to {stop} cannot be read: {error}. Check the disk, "
                "and copy the file again."
            ) from error
        if now != file.state:
            raise self._changed()
        return check_length(content, start, stop, self.name)

    def __getstate__(self) -> str:
        return self.name

    def __setstate__(self, name: str) -> None:
        self.__init__(name)  # type: ignore[misc]

    def _open(self) -> _LocalHandle:
        # No lock, which a fork could leave locked: of two files opened at once, one closes itself.
        file = self._file
        if file is None:
            file = _LocalHandle(self.name)
            if self._seen.setdefault(self.name, file.state) != file.state:
                raise self._changed()
            self._file = file
        return file

    def _changed(self) -> ChangedFileError:
        return ChangedFileError(
            f"{self.name}: the file was changed while the dataset was being read. Start the run "
            "again, or read a copy that nobody changes."
        )


class _FileState(NamedTuple):
    size: int
    written_ns: int


def _file_state(fd: int) -> _FileState:
    found = os.fstat(fd)
    return _FileState(found.st_size, found.st_mtime_ns)


class _LocalHandle:
    """An open file that closes itself with its last reader."""

    def __init__(self, path: str) -> None:
        check_encodable(path)
        try:
            self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(
                f"{path}: there is no such file. Download or copy it, or check the dataset's root."
            ) from error
        except PermissionError as error:
            raise AccessDeniedError(f"{path}: {error.strerror}. Check who may read it.") from error
        except OSError as error:
            # Too many open files, for example: the file itself is fine.
            raise StorageError(f"{path}: cannot be opened: {error.strerror}.") from error
        weakref.finalize(self, os.close, self.fd)
        self.state = _file_state(self.fd)
