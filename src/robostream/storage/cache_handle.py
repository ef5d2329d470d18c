# SPDX-License-Identifier: Apache-2.0
"""What the files of a cache share in one process, and the decision to do without the cache.

A disk that is full or fails must not end a run: the first refusal is told, once, and from then on
this process writes nothing more to the cache. What is there is still read.
"""

from __future__ import annotations

import errno
import logging
import weakref
from collections import deque
from collections.abc import Callable

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.storage.block_file import BlockFile
from robostream.storage.cache_folder import Folder, LivenessLock
from robostream.storage.cache_quota import CacheQuota, locked_room

logger = logging.getLogger(__name__)

_OPEN_FILES = 128  # block files kept open per process
_CONSEQUENCE = "What it does not have is read from its store each time."


_LOWER = "lower cache_limit (ROBOSTREAM_CACHE_LIMIT; 0 keeps nothing) or choose another cache_dir."
_CURES = {
    errno.EFBIG: f"Raise the limit for the size of files (`ulimit -f`), {_LOWER}",
    errno.ENOSPC: f"Free space on the disk, {_LOWER}",
    errno.EDQUOT: f"Free space in your quota, {_LOWER}",
}


class HeldBytes:
    """Bytes of a remote file from `start` on, in memory."""

    def __init__(self, start: int, content: bytes) -> None:
        self.start = start
        self.stop = start + len(content)
        self.content = content


class CacheHandle:
    """One process's hold on a cache. Thread-safe; pickles without what it holds."""

    def __init__(self, folder: Folder, limit_bytes: int) -> None:
        self.folder = folder
        self.limit_bytes = limit_bytes
        self.is_off = self._is_read_only = not folder.is_writable()
        self.spare_after: float | None = None  # what room may cost, as `CacheQuota.make` says
        self.is_tight = False  # whether there is no room beside what runs will read
        self._memory: dict[int, int] = {}
        self._told: set[str] = set()
        self._lease: LivenessLock | None = None
        self._open: deque[BlockFile] = deque(maxlen=_OPEN_FILES)

    def write(self, action: Callable[[CacheQuota], object]) -> None:
        """Run what writes blocks or deletes them, under the folder's lock."""

        def locked() -> None:
            with locked_room(self.folder, self.limit_bytes) as room:
                action(room)

        self.note(locked)

    def note(self, action: Callable[[], None]) -> None:
        """Run what writes to the cache, unless it was given up; give it up if the disk refuses."""
        if self.is_off:
            return
        try:
            action()
        except OSError as error:
            self.give_up(error)

    def give_up(self, error: OSError) -> None:
        """Write nothing more."""
        self.is_off, self._is_read_only = True, False
        self.tell(
            f"is not written any more, because the disk refused: {error}. {_CONSEQUENCE} "
            f"{_CURES.get(error.errno or 0, '')}".strip()
        )

    def hold(self, start: int, content: bytes) -> HeldBytes:
        """Return bytes that are held in memory as long as the object lives."""
        held = HeldBytes(start, content)
        self._memory[id(held)] = len(content)
        weakref.finalize(held, self._memory.pop, id(held), None)
        return held

    def has_memory(self, nbytes: int) -> bool:
        """Return whether so many bytes more may be held in memory."""
        return sum(list(self._memory.values())) + nbytes <= config.PREFETCH_MEMORY_BYTES

    def tell_read_only(self) -> None:
        """Say that something is missing in a cache that may only be read."""
        if self._is_read_only:
            self.tell(f"may only be read by this process, so nothing is added. {_CONSEQUENCE}")

    def tell_full(self, nbytes: int) -> None:
        """Say that something did not fit."""
        limit, more = format_bytes(self.limit_bytes), format_bytes(nbytes)
        self.tell(
            f"has no room for {more}: its limit is {limit}, or the disk is full. {_CONSEQUENCE}"
        )

    def tell(self, what: str) -> None:
        """Warn of something, but only of the first of its kind."""
        kind = " ".join(what.split()[:3])
        if kind not in self._told:
            self._told.add(kind)
            logger.warning("the cache in %s %s", self.folder.path, what)

    def hold_open(self, file: BlockFile) -> BlockFile:
        """Keep a file open until many others were opened after it."""
        self._open.append(file)
        return file

    def lease_number(self) -> int:
        """Return the number that marks this process's hints."""
        if self._lease is None:
            self._lease = LivenessLock(self.folder)
        return self._lease.number

    def __reduce__(self) -> tuple[type[CacheHandle], tuple[Folder, int]]:
        return CacheHandle, (self.folder, self.limit_bytes)
