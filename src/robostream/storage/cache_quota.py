# SPDX-License-Identifier: Apache-2.0
"""Which blocks go when room is needed. Pure.

First those that no living process said it will use, least recently used ones first; then those
with the furthest next use. So runs of the past give way before the present one, and inside a run
what goes is what it needs last. The unit is an extent of neighbouring blocks: as much worth as its
best block, so that the choice stays quick in a large cache and holes are not too small.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from robostream.storage.block_file import BlockFile, open_block_file
from robostream.storage.block_layout import MAGIC, Flags, runs
from robostream.storage.cache_folder import Folder, alone, living_leases
from robostream.storage.mapped_file import whole_files
from robostream.storage.safe_files import open_private

EXTENT_BLOCKS = 16


@dataclass(frozen=True, slots=True)
class Extents:
    """What lies in one file of the cache, by extent.

    Attributes:
        nbytes: The space each takes.
        wanted: Which hold a block that a living process said it will use.
        worths: Of two that are wanted alike, the one of lower worth goes first.
    """

    nbytes: npt.NDArray[np.int64]
    wanted: Flags
    worths: npt.NDArray[np.float64]


def weigh(
    held_bytes: npt.NDArray[np.int64],
    wanted: Flags,
    dues: npt.NDArray[np.float64],
    uses: npt.NDArray[np.uint32],
) -> Extents:
    """Return the extents of a file.

    Args:
        held_bytes: The space each block takes, 0 for one that is not there.
        wanted: Which blocks a living process said it will use.
        dues: When, on that process's clock.
        uses: When each block was used last, in seconds since 1970.
    """
    begins = np.arange(0, len(held_bytes), EXTENT_BLOCKS)
    if not len(begins):
        return Extents(np.zeros(0, np.int64), np.zeros(0, bool), np.zeros(0))
    held = held_bytes > 0
    wanted = held & wanted
    last_use = np.maximum.reduceat(np.where(held, uses, 0.0), begins)
    next_use = np.minimum.reduceat(np.where(wanted, dues, np.inf), begins)
    is_wanted = np.logical_or.reduceat(wanted, begins)
    worths = np.where(is_wanted, -next_use, last_use)
    return Extents(np.add.reduceat(held_bytes, begins), is_wanted, worths)


def one_extent(nbytes: int, last_use_s: float) -> Extents:
    """Return a file that stays or goes as a whole."""
    return Extents(np.array([nbytes]), np.zeros(1, bool), np.array([last_use_s]))


def choose_victims(
    files: Sequence[Extents],
    needed_bytes: int,
    *,
    least_bytes: int = 0,
    due: float | None = None,
) -> list[tuple[int, Flags]]:
    """Return (number of the file, which of its extents) to drop for `needed_bytes` to be free.

    Args:
        files: What there is.
        needed_bytes: How much should go.
        least_bytes: Nothing goes unless so much can.
        due: Extents that are wanted at this time or sooner stay; with None, any may go.
    """
    if not files or needed_bytes <= 0:
        return []
    nbytes = np.concatenate([each.nbytes for each in files])
    wanted = np.concatenate([each.wanted for each in files])
    worths = np.concatenate([each.worths for each in files])
    order = np.lexsort((worths, wanted))
    may_go = nbytes > 0
    if due is not None:
        may_go &= ~wanted | (worths < -due) | np.isneginf(worths)
    order = order[may_go[order]]
    if not len(order) or nbytes[order].sum() < least_bytes:
        return []
    count = int(np.searchsorted(np.cumsum(nbytes[order]), needed_bytes)) + 1
    chosen = np.zeros(len(nbytes), dtype=bool)
    chosen[order[:count]] = True
    parts = np.split(chosen, np.cumsum([len(each.nbytes) for each in files])[:-1])
    return [(number, part) for number, part in enumerate(parts) if part.any()]


def blocks_of(extents: Flags, held: Flags) -> list[range]:
    """Return the runs of blocks that lie in some extents of a file."""
    return runs(held & np.repeat(extents, EXTENT_BLOCKS)[: len(held)])


# Free space that is left to others: this share of the disk, or this much if that is less.
_LEFT_SHARE, _LEFT_BYTES = 0.05, 5 * 1024**3
# CacheQuota is made for more than is needed now, so that not every fill has to look at every block.
_EXTRA_SHARE = 1 / 16
_COUNT = struct.Struct("<QII")  # bytes in use, start of the machine, check
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_BLOCK_FILE_NAME = re.compile("[0-9a-f]{64}")


class CacheQuota:
    """The space of a cache, seen by who holds its lock."""

    def __init__(self, folder: Folder, limit_bytes: int, lock_fd: int) -> None:
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
        used = 0
        for _, file in block_files(self._folder):
            file.clean(after_restart=True)
            used += file.nbytes
        used += sum(state.st_size for _, state, _ in self._named_files())
        self._set_used(used)
        return used

    def make(self, nbytes: int, *, kept: Path | None = None, due: float | None = None) -> bool:
        """Set space aside, dropping blocks if need be; False if there cannot be so much.

        Args:
            nbytes: How much will be written.
            kept: The block file it is for, if any, which stays even if all its blocks go.
            due: When it is read; what is wanted no later stays. With None, any block may go.
        """
        has_room = self.free(nbytes, kept=kept, due=due)
        if has_room:
            self._set_used(self.used() + nbytes)
        return has_room

    def free(self, nbytes: int, *, kept: Path | None, due: float | None) -> bool:
        """Return whether there is so much space now, after dropping blocks as `make` does."""
        used = self.used()
        allowed = self._allowed(used)
        if nbytes > allowed:
            return False
        if used + nbytes > allowed:
            used = self._shrink_to(allowed - nbytes, int(allowed * (1 - _EXTRA_SHARE)), kept, due)
        return used + nbytes <= allowed

    def capacity(self) -> int:
        """Return how many bytes can be in use without room being made among them."""
        return int(self._allowed(self.used()) * (1 - _EXTRA_SHARE))

    def clear(self) -> int:
        """Drop all that the cache has and nobody has mapped; returns the bytes it freed."""
        freed = 0
        for path, file in block_files(self._folder):
            freed += file.nbytes
            file.drop_all()
            path.unlink()
        for path in _broken_files(self._folder):
            path.unlink()
        left = 0
        for path, state, is_leased in self._named_files():
            if is_leased:
                left += state.st_size
            else:
                path.unlink()
                freed += state.st_size
        living_leases(self._folder)
        self._set_used(left)
        return freed

    def _allowed(self, used: int) -> int:
        """Return how much may be in use: the limit, or less on a disk that others fill."""
        disk = os.statvfs(self._folder.path)
        left = min(disk.f_blocks * disk.f_frsize * _LEFT_SHARE, _LEFT_BYTES)
        return min(self._limit_bytes, used + disk.f_bavail * disk.f_frsize - int(left))

    def _named_files(self) -> Iterator[tuple[Path, os.stat_result, bool]]:
        """Yield whole files; what those who died while they wrote left behind goes."""
        for path, state, is_leased in whole_files(self._folder):
            if path.suffix == ".part" and not is_leased:
                path.unlink()
            else:
                yield path, state, is_leased

    def _shrink_to(self, most: int, target: int, kept: Path | None, due: float | None) -> int:
        """Drop blocks until at most `most` bytes are in use, or none if that cannot be.

        Drops more, down to `target` bytes, if it can. Returns how many are in use.
        """
        living = living_leases(self._folder)
        paths, extents, used = [], [], 0
        for path, file in block_files(self._folder):
            file.clean(after_restart=False)
            paths.append(path)
            extents.append(_weigh(file, living))
            used += file.nbytes
        blocks = len(paths)
        for path, state, is_leased in self._named_files():
            used += state.st_size
            if not is_leased:
                paths.append(path)
                extents.append(one_extent(state.st_size, state.st_mtime))
        needed = used - min(most, target)
        for number, chosen in choose_victims(extents, needed, least_bytes=used - most, due=due):
            if number >= blocks:
                used -= paths[number].stat().st_size
                paths[number].unlink()
                continue
            file = _reopened(paths[number])
            used -= file.nbytes
            file.drop(blocks_of(chosen, file.held()))
            used += file.nbytes
        for path in paths[:blocks]:
            file = _reopened(path)
            if path != kept and not file.held().any() and not _is_wanted(file, living).any():
                # Whoever has it open sees that it is deleted, and makes a new one.
                path.unlink()
                used -= file.nbytes
        self._set_used(used)
        return used

    def _set_used(self, used: int) -> None:
        content = struct.pack("<QI", max(used, 0), _this_boot())
        os.pwrite(self._lock_fd, content + zlib.crc32(content).to_bytes(4, "little"), 0)


@contextmanager
def locked_room(folder: Folder, limit_bytes: int) -> Iterator[CacheQuota]:
    """Hold a cache's lock, and with it its space."""
    with alone(folder.lock) as fd:
        yield CacheQuota(folder, limit_bytes, fd)


def block_files(folder: Folder) -> Iterator[tuple[Path, BlockFile]]:
    """Yield all block files, open one at a time."""
    for path in sorted(folder.blocks.iterdir()):
        file = open_block_file(path) if _BLOCK_FILE_NAME.fullmatch(path.name) else None
        if file is not None:
            yield path, file


def _broken_files(folder: Folder) -> Iterator[Path]:
    """Yield block files whose head a power cut took; a file that others put there is none."""
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


def _reopened(path: Path) -> BlockFile:
    file = open_block_file(path)
    if file is None:
        raise OSError(f"{path}: gone or damaged while the cache was locked")
    return file


def _weigh(file: BlockFile, living: list[int]) -> Extents:
    held_bytes = file.held() * np.int64(file.layout.block_bytes)
    return weigh(held_bytes, _is_wanted(file, living), file.dues(), file.uses())


def _is_wanted(file: BlockFile, living: list[int]) -> Flags:
    return np.isin(file.owners(), living)


@lru_cache(maxsize=1)
def _this_boot() -> int:
    try:
        return zlib.crc32(_BOOT_ID.read_bytes())
    except OSError:
        return 0
