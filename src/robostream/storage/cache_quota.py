# SPDX-License-Identifier: Apache-2.0
"""The bytes in use of a cache, and which blocks to evict.

Eviction takes first the blocks that no live process announced to use, least recently used first,
then those with the latest next use. So past runs give way to the present one, and a run loses what
it needs last. The unit is an extent of neighbouring blocks with the worth of its best block: that
keeps the choice fast in a large cache, and holes large.

The lock file holds the number of bytes in use. They are added before a write and subtracted after a
deletion, so a killed process makes the number too high, never too low. It is counted again whenever
blocks must be evicted, and after each restart of the machine, when it may be outdated.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.storage.block_file import MAGIC, BlockFile, Flags, open_block_file, runs
from robostream.storage.cache_folder import (
    CacheFolder,
    is_locked,
    live_processes,
    locked,
    open_private,
)

EXTENT_BLOCKS = 16
# Free space that the cache leaves: this share of the disk, at most this many bytes.
_LEFT_SHARE, _LEFT_BYTES = 0.05, 5 * 1024**3
# Evictions free this much more than is needed, so that not every fill examines every block.
_EXTRA_SHARE = 1 / 16
_COUNT = struct.Struct("<QII")  # bytes in use, boot of the machine, checksum
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BLOCK_FILE_NAME = re.compile("[0-9a-f]{64}")
_MAPPED_FILE_NAME = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{32}\.part")


class Extents(NamedTuple):
    """The extents of one file of the cache: the space of each, and what decides on its eviction."""

    nbytes: npt.NDArray[np.int64]
    wanted: Flags  # holds a block that a live process announced to use
    worths: npt.NDArray[np.float64]  # of two both wanted or both not, the lower goes first


def rank_blocks(
    block_bytes: npt.NDArray[np.int64],
    wanted: Flags,
    next_uses: npt.NDArray[np.float64],
    last_uses: npt.NDArray[np.uint32],
) -> Extents:
    """Return the extents of a block file; `block_bytes` is 0 for a missing block. Pure."""
    begins = np.arange(0, len(block_bytes), EXTENT_BLOCKS)
    occupied = block_bytes > 0
    wanted = occupied & wanted
    last_use = np.maximum.reduceat(np.where(occupied, last_uses, 0.0), begins)
    next_use = np.minimum.reduceat(np.where(wanted, next_uses, np.inf), begins)
    is_wanted = np.logical_or.reduceat(wanted, begins)
    worths = np.where(is_wanted, -next_use, last_use)
    return Extents(np.add.reduceat(block_bytes, begins), is_wanted, worths)


def choose_evictions(
    files: Sequence[Extents],
    needed_bytes: int,
    *,
    least_bytes: int = 0,
    next_use: float | None = None,
) -> list[Flags]:
    """Return for each file which of its extents to evict for `needed_bytes`. Pure."""
    # Evicts nothing unless `least_bytes` can be freed. Extents wanted at `next_use` or earlier
    # stay; with None, any may go.
    if not files:
        return []
    nbytes, wanted, worths = map(np.concatenate, zip(*files, strict=True))
    order = np.lexsort((worths, wanted))
    may_go = nbytes > 0
    if next_use is not None:
        may_go &= ~wanted | (worths < -next_use) | np.isneginf(worths)
    order = order[may_go[order]]
    freed = np.cumsum(nbytes[order])
    chosen = np.zeros(len(nbytes), dtype=bool)
    if needed_bytes > 0 and freed[-1:].sum() >= least_bytes:
        chosen[order[: np.searchsorted(freed, needed_bytes) + 1]] = True
    return np.split(chosen, np.cumsum([len(each.nbytes) for each in files])[:-1])


def blocks_of(extents: Flags, occupied: Flags) -> list[range]:
    """Return the runs of occupied blocks in the chosen extents of a file. Pure."""
    return runs(occupied & np.repeat(extents, EXTENT_BLOCKS)[: len(occupied)])


class CacheQuota:
    """The space of a cache. The caller holds the folder lock."""

    def __init__(self, folder: CacheFolder, limit_bytes: int, lock_fd: int) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._lock_fd = lock_fd

    def used(self) -> int:
        """Return the bytes in use."""
        content = os.pread(self._lock_fd, _COUNT.size, 0)
        if len(content) == _COUNT.size:
            used, boot, check = _COUNT.unpack(content)
            if boot == _this_boot() and check == zlib.crc32(content[:-4]):
                return int(used)
        for path in _broken_files(self._folder):
            path.unlink()
        used = sum(size for *_, size in self._examine([], after_restart=True))
        self._set_used(used)
        return used

    def reserve(
        self, nbytes: int, *, kept: Path | None = None, next_use: float | None = None
    ) -> bool:
        """Reserve space, evicting blocks if necessary; False if there is not enough.

        The block file `kept`, which is about to be written, stays even if all its blocks are
        evicted. Blocks needed at `next_use` or earlier stay; with None, any may be evicted.
        """
        is_free = self.free(nbytes, kept=kept, next_use=next_use)
        if is_free:
            self._set_used(self.used() + nbytes)
        return is_free

    def free(self, nbytes: int, *, kept: Path | None, next_use: float | None) -> bool:
        """Return whether `nbytes` are free, after evicting blocks as `reserve` does."""
        # Evicts more than is needed now if possible, and nothing if that would not be enough.
        used = self.used()
        allowed = self._allowed(used)
        most = allowed - nbytes
        if most < 0 or used <= most:
            return used <= most
        live = live_processes(self._folder)
        entries = list(self._examine(live, after_restart=False))
        used = sum(size for *_, size in entries)
        evictions = choose_evictions(
            [extents for _, extents, _ in entries],
            used - min(most, int(allowed * (1 - _EXTRA_SHARE))),
            least_bytes=used - most,
            next_use=next_use,
        )
        for (path, _, size), chosen in zip(entries, evictions, strict=True):
            if path.parent == self._folder.blocks:
                used -= _evict_blocks(path, chosen, live, may_delete=path != kept)
            elif chosen.any():
                path.unlink()
                used -= size
        self._set_used(used)
        return used <= most

    def capacity(self) -> int:
        """Return how many bytes can be in use without evictions."""
        return int(self._allowed(self.used()) * (1 - _EXTRA_SHARE))

    def clear(self) -> int:
        """Delete everything except mapped files in use; return the bytes freed."""
        freed = left = 0
        for path, file in block_files(self._folder):
            freed += file.nbytes
            file.drop_all()
            path.unlink()
        for path in _broken_files(self._folder):
            path.unlink()
        for path, state, is_in_use in mapped_files(self._folder):
            if is_in_use:
                left += state.st_size
            else:
                path.unlink()
                freed += state.st_size
        live_processes(self._folder)
        self._set_used(left)
        return freed

    def _allowed(self, used: int) -> int:
        """Return how much may be in use: the limit, or less on a full disk."""
        disk = os.statvfs(self._folder.path)
        left = min(disk.f_blocks * disk.f_frsize * _LEFT_SHARE, _LEFT_BYTES)
        return min(self._limit_bytes, used + disk.f_bavail * disk.f_frsize - int(left))

    def _examine(
        self, live: list[int], *, after_restart: bool
    ) -> Iterator[tuple[Path, Extents, int]]:
        """Yield each file, its extents and its size; drop the remains of interrupted writes."""
        for path, file in block_files(self._folder):
            file.clean(after_restart=after_restart)
            sizes = file.occupied() * np.int64(file.layout.block_bytes)
            columns = _is_wanted(file, live), file.column("next_use"), file.column("last_use")
            yield path, rank_blocks(sizes, *columns), file.layout.data_at + int(sizes.sum())
        for path, state, is_in_use in mapped_files(self._folder):
            nbytes = np.array([0 if is_in_use else state.st_size])
            extents = Extents(nbytes, np.zeros(1, bool), np.array([state.st_mtime]))
            yield path, extents, state.st_size

    def _set_used(self, used: int) -> None:
        content = struct.pack("<QI", max(used, 0), _this_boot())
        os.pwrite(self._lock_fd, content + zlib.crc32(content).to_bytes(4, "little"), 0)


@contextmanager
def locked_quota(folder: CacheFolder, limit_bytes: int) -> Iterator[CacheQuota]:
    """Hold the folder lock; yields the quota."""
    with locked(folder.lock) as fd:
        yield CacheQuota(folder, limit_bytes, fd)


def block_files(folder: CacheFolder) -> Iterator[tuple[Path, BlockFile]]:
    """Yield all valid block files, open one at a time."""
    for path in sorted(folder.blocks.iterdir()):
        file = open_block_file(path) if _BLOCK_FILE_NAME.fullmatch(path.name) else None
        if file is not None:
            yield path, file


def _broken_files(folder: CacheFolder) -> Iterator[Path]:
    """Yield block files that lost their header in a power cut; foreign files do not count."""
    for path in folder.blocks.iterdir():
        if (
            _BLOCK_FILE_NAME.fullmatch(path.name)
            and path.is_file()
            and not path.is_symlink()
            and open_block_file(path) is None
        ):
            with open(open_private(path, os.O_RDONLY), "rb") as file:
                if file.read(len(MAGIC)).strip(b"\0") in (b"", MAGIC):
                    yield path


def mapped_files(folder: CacheFolder) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Yield each mapped file, its status, and whether it is in use. Under the folder lock."""
    # Files of dead writers are deleted.
    for path in sorted(folder.files.iterdir()):
        if _MAPPED_FILE_NAME.fullmatch(path.name) and path.is_file() and not path.is_symlink():
            is_in_use = is_locked(path)
            if is_in_use or path.suffix != ".part":
                yield path, path.stat(), is_in_use
            else:
                with suppress(OSError):  # a read-only disk
                    path.unlink()


def _evict_blocks(path: Path, chosen: Flags, live: list[int], *, may_delete: bool) -> int:
    """Evict extents of a block file, and the file if nothing is left; return the bytes freed."""
    file = open_block_file(path)
    if file is None:
        raise OSError(f"{path}: gone or damaged while the cache was locked")
    before = file.nbytes
    file.drop_blocks(blocks_of(chosen, file.occupied()))
    if not may_delete or file.occupied().any() or _is_wanted(file, live).any():
        return before - file.nbytes
    path.unlink()  # a process that has it open notices that, and creates a new one
    return before


def _is_wanted(file: BlockFile, live: list[int]) -> Flags:
    return np.isin(file.column("owner"), live)


@lru_cache(maxsize=1)
def _this_boot() -> int:
    try:
        return zlib.crc32(_BOOT_ID.read_bytes())
    except OSError:
        return 0
