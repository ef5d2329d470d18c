# SPDX-License-Identifier: Apache-2.0
"""A cache of remote bytes on local disk, shared by all processes of a machine without a server.

A full or failing disk must not end a run: the first failure is logged once, and from then on this
process writes nothing more to the cache. It still reads what is there.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import math
import os
import uuid
import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from robostream import config
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.errors import CacheError
from robostream.storage.block_file import BlockFile
from robostream.storage.cache_folder import (
    CacheFolder,
    claimed,
    locked,
    open_cache_folder,
    open_private,
    take_number,
)
from robostream.storage.cache_quota import CacheQuota, block_files, locked_quota, mapped_files
from robostream.storage.location import digest

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MAX_OPEN_FILES = 128  # block files kept open per process
_CONSEQUENCE = "Bytes that it lacks are read from their store each time."
_LOWER = "lower cache_limit (ROBOSTREAM_CACHE_LIMIT; 0 keeps nothing) or choose another cache_dir."
_CURES = {
    errno.EFBIG: f"Raise the limit for the size of files (`ulimit -f`), {_LOWER}",
    errno.ENOSPC: f"Free space on the disk, {_LOWER}",
    errno.EDQUOT: f"Free space in your quota, {_LOWER}",
}


@dataclass(frozen=True, slots=True)
class CachedFileInfo:
    """What the cache has of one version of one remote file."""

    name: str  # without secrets
    size_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache has."""

    folder: Path
    limit_bytes: int
    used_bytes: int
    files: tuple[CachedFileInfo, ...]
    whole_files: int  # the number of mapped files


class Cache:
    """Blocks of remote files, and mapped files, in a folder of their own. Thread-safe.

    The folder is created if it is missing; raises CacheError if it has other content. The limit is
    for all processes together, and never more than the disk can spare. The block size is a multiple
    of 4096; an existing cache keeps its own.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, block_bytes: int = config.CACHE_BLOCK_BYTES
    ) -> None:
        self.limit_bytes = limit_bytes
        self.is_full = False  # whether no space is left beside what runs will read
        self.next_use: float | None = None  # of bytes without one, as in `CacheQuota.reserve`
        self.open_files: deque[BlockFile] = deque(maxlen=_MAX_OPEN_FILES)  # those opened last
        self._memory: weakref.WeakValueDictionary[int, memoryview] = weakref.WeakValueDictionary()
        self._warned: set[str] = set()
        self._number: int | None = None
        try:
            self.folder = open_cache_folder(Path(folder), block_bytes)
            # Whether this process writes nothing to the cache.
            self.is_off = self._is_read_only = not self.folder.is_writable()
        except OSError as error:
            self.folder = CacheFolder(Path(folder), block_bytes)
            self.turn_off(error)

    def may_hold(self, size: int) -> bool:
        """Return whether a file of `size` bytes may be kept; warn if it is too large."""
        most = config.MOST_CACHED_BLOCKS * self.folder.block_bytes
        if size > most:
            self.warn_once(
                "too large",
                f"does not hold files of more than {format_bytes(most)} "
                f"(config.MOST_CACHED_BLOCKS), but one has {format_bytes(size)}.",
            )
        return size <= most

    def capacity(self) -> int:
        """Return how many bytes can be kept without evictions."""
        if self.is_off:
            return 0
        with locked_quota(self.folder, self.limit_bytes) as quota:
            return quota.capacity()

    def info(self) -> CacheInfo:
        """Return what the cache has, counted now."""
        with locked_quota(self.folder, self.limit_bytes):
            files = [(f.shown_name, f.layout, f.nbytes) for _, f in block_files(self.folder)]
            sizes = [state.st_size for _, state, _ in mapped_files(self.folder)]
        infos = tuple(
            CachedFileInfo(name, layout.size_bytes, min(nbytes - layout.data_at, layout.size_bytes))
            for name, layout, nbytes in sorted(files, key=lambda file: file[0])
        )
        used = sum(nbytes for *_, nbytes in files) + sum(sizes)
        return CacheInfo(self.folder.path, self.limit_bytes, used, infos, len(sizes))

    def clear(self) -> int:
        """Delete what the cache has, and nothing else; return the bytes freed."""
        # Processes that use the cache continue, and fetch again.
        if not self.folder.is_writable():
            path = self.folder.path
            raise CacheError(f"{path}: this user may only read the cache, not clear it.")
        with locked_quota(self.folder, self.limit_bytes) as quota:
            return quota.clear()

    def run_locked(self, action: Callable[[CacheQuota], T]) -> T | None:
        """Return what `action` returns under the folder lock; None if the cache is off."""

        def run() -> T:
            with locked_quota(self.folder, self.limit_bytes) as quota:
                return action(quota)

        return self.run(run)

    def run(self, action: Callable[[], T]) -> T | None:
        """Return what `action`, which writes, returns; None if the cache is off or fails now."""
        if self.is_off:
            return None
        try:
            return action()
        except OSError as error:
            self.turn_off(error)
            return None

    def turn_off(self, error: OSError) -> None:
        """Write nothing more to the cache."""
        self.is_off, self._is_read_only = True, False
        cure = _CURES.get(error.errno or 0, "")
        text = f"is no longer written, because the disk failed: {error}. {_CONSEQUENCE} {cure}"
        self.warn_once("off", text.strip())

    def start_prefetching(self) -> None:
        """From now on, never evict what a run will read for bytes without a next use."""
        self.next_use = math.inf

    def note_full(self, nbytes: int) -> None:
        """Record that blocks of `nbytes` do not fit."""
        if self.next_use is None:
            self.warn_full(nbytes)
        else:
            self.is_full = True

    def hold_in_memory(self, content: bytes) -> memoryview:
        """Return bytes that count as held in memory while the object lives."""
        held = memoryview(content)
        self._memory[id(held)] = held
        return held

    def has_memory(self, nbytes: int) -> bool:
        """Return whether `nbytes` more may be held in memory."""
        held = (reference() for reference in self._memory.valuerefs())
        return sum(map(len, filter(None, held))) + nbytes <= config.PREFETCH_MEMORY_BYTES

    def warn_read_only(self) -> None:
        """Warn that something is missing in a read-only cache."""
        if self._is_read_only:
            text = f"may only be read by this process, so nothing is added. {_CONSEQUENCE}"
            self.warn_once("read-only", text)

    def warn_full(self, nbytes: int) -> None:
        """Warn that something did not fit."""
        limit, more = format_bytes(self.limit_bytes), format_bytes(nbytes)
        text = f"has no space for {more}: its limit is {limit}, or the disk is full. {_CONSEQUENCE}"
        self.warn_once("full", text)

    def warn_once(self, kind: str, text: str) -> None:
        """Log a warning about the cache, the first of its kind."""
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("the cache in %s %s", self.folder.path, text)

    def process_number(self) -> int:
        """Return a number that belongs to this process until the object or the process is gone."""
        # No cached_property: in Python 3.10 it takes a lock, which a fork could leave locked.
        self._number = self._number or take_number(self.folder, self)
        return self._number


def cache_limit(folder: Path, limit: float | str | None) -> int:
    """Return a limit in bytes, from a number or a text such as "200GB".

    Without one, returns `ROBOSTREAM_CACHE_LIMIT`, or else half of the free disk space. Space that
    the cache occupies counts as free, so that the limit stays the same as it fills.
    """
    limit = config.cache_limit_setting() if limit is None else limit
    if limit is not None:
        return parse_bytes(limit)
    existing = folder.absolute()
    while not existing.exists():
        existing = existing.parent
    disk = os.statvfs(existing)
    left = disk.f_bavail * disk.f_frsize
    for path in folder.glob("[bf]*/*"):
        with suppress(FileNotFoundError):  # deleted meanwhile
            left += path.stat().st_blocks * 512
    return int(left * config.CACHE_SHARE_OF_DISK)


class MappedFile:
    """A complete file in the cache, such as decoded rows, that processes memory-map.

    It never changes once it has its name, and is not evicted while this object lives: readers hold
    a shared lock, because the space would not be free before the last reader ends. The writer holds
    an exclusive lock until the file has its name. Existing mappings of an unlinked file stay valid.
    """

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

    It is made from `name`, and again for another version. `make` is called if the file is missing,
    and returns its size and a function that writes it; errors of `make` itself are raised.
    """
    path = cache.folder.files / digest(name, version)
    number = int(path.name[:12], 16)
    file = _find_mapped(cache, path)
    if file is None and not cache.is_off:
        with claimed(cache.folder.lock, number, number + 1):
            file = _find_mapped(cache, path) or _make_mapped(cache, path, *make())
    return file


def discard_mapped_file(cache: Cache, file: MappedFile) -> None:
    """Remove a damaged file, unless another has its name; existing mappings stay valid."""

    def remove(_: CacheQuota) -> None:
        with suppress(FileNotFoundError):
            if os.path.samestat(file.stat(), file.path.lstat()):
                file.path.unlink()

    cache.run_locked(remove)


def _find_mapped(cache: Cache, path: Path) -> MappedFile | None:
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


def _make_mapped(
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
