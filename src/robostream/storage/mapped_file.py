# SPDX-License-Identifier: Apache-2.0
"""Complete files in the cache, such as decoded rows, that processes memory-map.

A file never changes once it has its name. Eviction unlinks the file; existing mappings stay valid.
Readers hold a shared lock, which prevents eviction, because the space would not be free before the
last reader ends. The writer holds an exclusive lock until the file has its name.
"""

from __future__ import annotations

import fcntl
import os
import re
import uuid
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from robostream.storage.cache_folder import CacheFolder, is_locked
from robostream.storage.safe_files import open_private

_NAME = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{32}\.part")


class MappedFile:
    """A file that is not evicted while this object lives."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def stat(self) -> os.stat_result:
        """Return the status of the file, even if it was unlinked."""
        return os.fstat(self._fd)


def find_mapped_file(path: Path) -> MappedFile | None:
    """Return a file, locked, or None if it is missing. The caller holds the folder lock."""
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    file = MappedFile(path, fd)
    fcntl.flock(fd, fcntl.LOCK_SH)
    with suppress(OSError):  # another user's file, or a read-only disk
        os.utime(fd)  # the time of last use
    return file


def begin_mapped_file(path: Path, nbytes: int) -> tuple[Path, int]:
    """Return a temporary file with allocated space, locked. The caller holds the folder lock."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    fd = open_private(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.posix_fallocate(fd, 0, nbytes)
    except BaseException:
        os.close(fd)
        temporary.unlink()
        raise
    return temporary, fd


def finish_mapped_file(
    temporary: Path, fd: int, path: Path, write: Callable[[BinaryIO], None]
) -> MappedFile:
    """Write a temporary file, sync it, and rename it to `path`."""
    file = MappedFile(path, fd)
    try:
        with open(fd, "r+b", closefd=False) as content:  # "r+b" keeps the allocated space
            write(content)
            content.truncate()
        os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    fcntl.flock(fd, fcntl.LOCK_SH)
    return file


def mapped_files(folder: CacheFolder) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each file, its status, and whether it is in use. The caller holds the folder lock."""
    for path in sorted(folder.files.iterdir()):
        if _NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path, path.stat(), is_locked(path)
