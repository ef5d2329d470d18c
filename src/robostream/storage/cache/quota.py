# SPDX-License-Identifier: Apache-2.0
"""The space of a cache: how much is in use, and making room. For who holds the folder's lock.

The lock's file keeps the bytes in use. They are added before anything is written and taken off
after it is gone, so a killed process makes the number too high, never too low; it is counted anew
whenever room must be made, and after each start of the machine, because it may be an old one then.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

import numpy as np

from robostream.storage.cache.block_file import BlockFile, open_block_file
from robostream.storage.cache.eviction import Extents, blocks_of, choose_victims, one_extent, weigh
from robostream.storage.cache.folder import Folder
from robostream.storage.cache.layout import MAGIC, Flags
from robostream.storage.cache.liveness import living_leases
from robostream.storage.cache.locks import alone
from robostream.storage.cache.whole_file import whole_files
from robostream.storage.files.private import open_private

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
