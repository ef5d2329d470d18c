# SPDX-License-Identifier: Apache-2.0
"""Complete files in the cache, such as decoded rows, that processes memory-map.

A file never changes once it has its name. Eviction unlinks the file; existing mappings stay valid.
Readers hold a shared lock, which prevents eviction, because the space would not be free before the
last reader ends. The writer holds an exclusive lock until the file has its name.
"""

from __future__ import annotations

import fcntl
import os
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from robostream.storage.cache import Cache, hash_key
from robostream.storage.cache_folder import claimed, locked
from robostream.storage.cache_quota import CacheQuota
from robostream.storage.safe_files import open_private


class MappedFile:
    """A file that is not evicted while this object lives."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.fd = fd
        weakref.finalize(self, os.close, fd)

    def stat(self) -> os.stat_result:
        """Return the status of the file, even if it was unlinked."""
        return os.fstat(self.fd)


def open_mapped_file(
    cache: Cache,
    name: str,
    version: str,
    make: Callable[[], tuple[int, Callable[[BinaryIO], None]]],
) -> MappedFile | None:
    """Return a file that one process makes for all; None if it cannot be kept.

    Args:
        cache: The cache.
        name: What it is made from.
        version: The version of that; another one makes another file.
        make: Called if the file is missing. Returns its size and a function that writes it; errors
            of `make` itself are raised.
    """
    path = cache.folder.files / hash_key(name, version)
    number = int(path.name[:12], 16)
    file = _find(cache, path)
    if file is None and not cache.is_off:
        with claimed(cache.folder.lock, number, number + 1):
            file = _find(cache, path) or _make(cache, path, *make())
    return file


def discard_mapped_file(cache: Cache, file: MappedFile) -> None:
    """Remove a damaged file, unless another has its name; existing mappings stay valid."""

    def remove(_: CacheQuota) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(file.stat(), file.path.lstat()):
                file.path.unlink()

    cache.run_locked(remove)


def _find(cache: Cache, path: Path) -> MappedFile | None:
    try:
        with locked(cache.folder.lock):
            file = MappedFile(path, open_private(path, os.O_RDONLY))
            fcntl.flock(file.fd, fcntl.LOCK_SH)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not cache.is_off:
            cache.turn_off(error)
        return None
    with suppress(OSError):  # another user's file, or a read-only disk
        os.utime(file.fd)  # the time of last use
    return file


def _make(
    cache: Cache, path: Path, nbytes: int, write: Callable[[BinaryIO], None]
) -> MappedFile | None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")

    def begin(quota: CacheQuota) -> MappedFile | None:
        if not quota.reserve(nbytes):
            cache.warn_full(nbytes)
            return None
        file = MappedFile(path, open_private(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL))
        fcntl.flock(file.fd, fcntl.LOCK_EX)
        os.posix_fallocate(file.fd, 0, nbytes)
        return file

    def finish(file: MappedFile) -> MappedFile:
        with open(file.fd, "r+b", closefd=False) as content:  # "r+b" keeps the allocated space
            write(content)
            content.truncate()
        os.fsync(file.fd)
        os.rename(temporary, path)
        fcntl.flock(file.fd, fcntl.LOCK_SH)
        return file

    try:
        file = cache.run_locked(begin)
        return None if file is None else cache.run(lambda: finish(file))
    finally:
        with suppress(OSError):  # it usually has its final name
            temporary.unlink()
