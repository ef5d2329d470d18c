# SPDX-License-Identifier: Apache-2.0
"""A cache of remote bytes on local disk, shared by all processes of a machine without a server.

A full or failing disk must not end a run: the first failure is logged once, and from then on this
process writes nothing more to the cache. It still reads what is there.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import math
import os
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from robostream import config
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.errors import CacheError
from robostream.storage.block_file import BlockFile
from robostream.storage.cache_folder import CacheFolder, LivenessLock, open_cache_folder
from robostream.storage.cache_quota import CacheQuota, block_files, locked_quota, mapped_files

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
    """What the cache has of one version of one remote file; `name` holds no secrets."""

    name: str
    size_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache has; `whole_files` counts mapped files."""

    folder: Path
    limit_bytes: int
    used_bytes: int
    files: tuple[CachedFileInfo, ...]
    whole_files: int


class MemoryChunk:
    """Bytes of a remote file from `start` on, in memory."""

    def __init__(self, start: int, content: bytes) -> None:
        self.start = start
        self.stop = start + len(content)
        self.content = content


class Cache:
    """Blocks of remote files, and mapped files, in a folder of their own.

    Thread-safe.

    Args:
        folder: Created if it is missing; raises CacheError if it has other content.
        limit_bytes: The limit for all processes together; never more than the disk can spare.
        block_bytes: The block size, a multiple of 4096; an existing cache keeps its own.

    Attributes:
        folder: The paths of the cache.
        is_off: Whether this process writes nothing to the cache.
        is_full: Whether no space is left beside what runs will read.
        next_use: The next use of bytes without one, as in `CacheQuota.reserve`.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, block_bytes: int = config.CACHE_BLOCK_BYTES
    ) -> None:
        try:
            self.folder, failure = open_cache_folder(Path(folder), block_bytes), None
        except OSError as error:
            self.folder, failure = CacheFolder(Path(folder), block_bytes), error
        self.limit_bytes = limit_bytes
        self.is_off = self._is_read_only = not self.folder.is_writable()
        self.is_full = False
        self.next_use: float | None = None
        self._memory: dict[int, int] = {}
        self._warned: set[str] = set()
        self._liveness: LivenessLock | None = None
        self._open: deque[BlockFile] = deque(maxlen=_MAX_OPEN_FILES)
        if failure is not None:
            self.turn_off(failure)

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
        infos = [
            CachedFileInfo(name, layout.size_bytes, min(nbytes - layout.data_at, layout.size_bytes))
            for name, layout, nbytes in files
        ]
        infos.sort(key=lambda file: file.name)
        used = sum(nbytes for *_, nbytes in files) + sum(sizes)
        return CacheInfo(self.folder.path, self.limit_bytes, used, tuple(infos), len(sizes))

    def clear(self) -> int:
        """Delete what the cache has, and nothing else; return the bytes freed.

        Processes that use the cache continue, and fetch again.
        """
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

    def hold_in_memory(self, start: int, content: bytes) -> MemoryChunk:
        """Return bytes that count as held in memory while the object lives."""
        chunk = MemoryChunk(start, content)
        self._memory[id(chunk)] = len(content)
        weakref.finalize(chunk, self._memory.pop, id(chunk), None)
        return chunk

    def has_memory(self, nbytes: int) -> bool:
        """Return whether `nbytes` more may be held in memory."""
        return sum(list(self._memory.values())) + nbytes <= config.PREFETCH_MEMORY_BYTES

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

    def keep_open(self, file: BlockFile) -> BlockFile:
        """Keep a file open until many others have been opened after it."""
        self._open.append(file)
        return file

    def process_number(self) -> int:
        """Return the number of this process's liveness lock."""
        if self._liveness is None:
            self._liveness = LivenessLock(self.folder)
        return self._liveness.number


def hash_key(*parts: str) -> str:
    """Return the name of a file in the cache. Pure."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


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
    left = disk.f_bavail * disk.f_frsize + sum(map(_disk_bytes, folder.glob("[bf]*/*")))
    return int(left * config.CACHE_SHARE_OF_DISK)


def _disk_bytes(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # deleted meanwhile
        return 0
