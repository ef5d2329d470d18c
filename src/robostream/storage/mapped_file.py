# SPDX-License-Identifier: Apache-2.0
"""Whole files that were made here, such as decoded rows, which processes map into their memory.

A file is never changed once it has its name, and goes by losing it: who has it mapped keeps its
bytes. A lease, a shared lock on the file, keeps it from going, because its space would not come
back before the last reader ends. Who makes a file holds its lock alone until it has its name.
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

from robostream.storage.cache_folder import Folder, is_held
from robostream.storage.safe_files import open_private

_NAME = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{32}\.part")


class WholeFile:
    """A file that stays as long as this object does."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self._fd = fd
        weakref.finalize(self, os.close, fd)

    def stat(self) -> os.stat_result:
        """Return the state of the file, also if it has lost its name."""
        return os.fstat(self._fd)


def find_whole(path: Path) -> WholeFile | None:
    """Return a file, leased, or None if there is none. For who holds the folder's lock."""
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    file = WholeFile(path, fd)
    fcntl.flock(fd, fcntl.LOCK_SH)
    with suppress(OSError):  # another user's, or of a disk that may only be read
        os.utime(fd)  # the time of last use
    return file


def begin_whole(path: Path, nbytes: int) -> tuple[Path, int]:
    """Return a file to write, not yet named, with its space. For who holds the folder's lock."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    fd = open_private(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.posix_fallocate(fd, 0, nbytes)
    except BaseException:
        os.close(fd)
        aside.unlink()
        raise
    return aside, fd


def write_whole(aside: Path, fd: int, path: Path, write: Callable[[BinaryIO], None]) -> WholeFile:
    """Write a file that was begun, make it durable and give it its name."""
    file = WholeFile(path, fd)
    try:
        with open(fd, "r+b", closefd=False) as content:  # which keeps its space
            write(content)
            content.truncate()
        os.fsync(fd)
        os.rename(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    fcntl.flock(fd, fcntl.LOCK_SH)
    return file


def whole_files(folder: Folder) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each file with its state and whether it is leased. For who holds the folder's lock."""
    for path in sorted(folder.files.iterdir()):
        if _NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            yield path, path.stat(), is_held(path)
