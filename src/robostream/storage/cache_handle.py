# SPDX-License-Identifier: Apache-2.0
"""What the files of a cache share in one process, and when to stop writing to the cache.

A full or failing disk must not end a run: the first failure is logged once, and from then on this
process writes nothing more to the cache. It still reads what is there.
"""

from __future__ import annotations

import errno
import logging
import math
import weakref
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.storage.block_file import BlockFile
from robostream.storage.cache_folder import CacheFolder, LivenessLock
from robostream.storage.cache_quota import CacheQuota, locked_quota

T = TypeVar("T")

logger = logging.getLogger(__name__)

_MAX_OPEN_FILES = 128  # block files kept open per process
_CONSEQUENCE = "What it does not have is read from its store each time."
_LOWER = "lower cache_limit (ROBOSTREAM_CACHE_LIMIT; 0 keeps nothing) or choose another cache_dir."
_CURES = {
    errno.EFBIG: f"Raise the limit for the size of files (`ulimit -f`), {_LOWER}",
    errno.ENOSPC: f"Free space on the disk, {_LOWER}",
    errno.EDQUOT: f"Free space in your quota, {_LOWER}",
}


class MemoryChunk:
    """Bytes of a remote file from `start` on, in memory."""

    def __init__(self, start: int, content: bytes) -> None:
        self.start = start
        self.stop = start + len(content)
        self.content = content


class CacheHandle:
    """A process's handle on a cache. Thread-safe; pickles as its arguments.

    Attributes:
        is_off: Whether this process writes nothing to the cache.
        is_full: Whether no space is left beside what runs will read.
        next_use: The next use of bytes without one, as in `CacheQuota.reserve`.
    """

    def __init__(self, folder: CacheFolder, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.is_off = self._is_read_only = not folder.is_writable()
        self.is_full = False
        self.next_use: float | None = None
        self._memory: dict[int, int] = {}
        self._warned: set[str] = set()
        self._liveness: LivenessLock | None = None
        self._open: deque[BlockFile] = deque(maxlen=_MAX_OPEN_FILES)

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
        self.warn_once(
            f"is not written any more, because the disk failed: {error}. {_CONSEQUENCE} "
            f"{_CURES.get(error.errno or 0, '')}".strip()
        )

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
            self.warn_once(f"may only be read by this process, so nothing is added. {_CONSEQUENCE}")

    def warn_full(self, nbytes: int) -> None:
        """Warn that something did not fit."""
        limit, more = format_bytes(self.limit_bytes), format_bytes(nbytes)
        self.warn_once(
            f"has no room for {more}: its limit is {limit}, or the disk is full. {_CONSEQUENCE}"
        )

    def warn_once(self, what: str) -> None:
        """Log a warning, unless one that starts with the same three words was logged."""
        kind = " ".join(what.split()[:3])
        if kind not in self._warned:
            self._warned.add(kind)
            logger.warning("the cache in %s %s", self.folder.path, what)

    def keep_open(self, file: BlockFile) -> BlockFile:
        """Keep a file open until many others have been opened after it."""
        self._open.append(file)
        return file

    def process_number(self) -> int:
        """Return the number of this process's liveness lock."""
        if self._liveness is None:
            self._liveness = LivenessLock(self.folder)
        return self._liveness.number

    def __reduce__(self) -> tuple[type[CacheHandle], tuple[CacheFolder, int]]:
        return CacheHandle, (self.folder, self.limit_bytes)
