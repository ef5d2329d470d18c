# SPDX-License-Identifier: Apache-2.0
"""A cache of remote bytes on local disk, shared by all processes of a machine without a server."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from robostream import config
from robostream.byte_sizes import format_bytes, parse_bytes
from robostream.errors import CacheError
from robostream.storage.block_layout import BlockLayout
from robostream.storage.cache_folder import CacheFolder, claimed, locked, open_cache_folder
from robostream.storage.cache_handle import CacheHandle
from robostream.storage.cache_quota import CacheQuota, block_files, locked_quota
from robostream.storage.cached_file import CachedFile
from robostream.storage.location import redact
from robostream.storage.mapped_file import (
    MappedFile,
    begin_mapped_file,
    find_mapped_file,
    finish_mapped_file,
    mapped_files,
)


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


class Cache:
    """Blocks of remote files in a folder of their own. Thread-safe; pickles as its arguments.

    Args:
        folder: Created if it is missing; raises CacheError if it has other content.
        limit_bytes: The limit for all processes together; never more than the disk can spare.
        block_bytes: The block size, a multiple of 4096; an existing cache keeps its own.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, block_bytes: int = config.CACHE_BLOCK_BYTES
    ) -> None:
        self._arguments = (Path(folder), limit_bytes, block_bytes)
        try:
            opened, failure = open_cache_folder(Path(folder), block_bytes), None
        except OSError as error:
            opened, failure = CacheFolder(Path(folder), block_bytes), error
        self._handle = CacheHandle(opened, limit_bytes)
        if failure is not None:
            self._handle.turn_off(failure)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._handle.folder.path

    @property
    def is_off(self) -> bool:
        """Whether this process writes nothing to the cache, because the disk failed."""
        return self._handle.is_off

    def may_hold(self, size: int) -> bool:
        """Return whether a file of `size` bytes may be kept; warn if it is too large."""
        most = config.MOST_CACHED_BLOCKS * self._handle.folder.block_bytes
        if size > most:
            self._handle.warn_once(
                f"keeps nothing of files of more than {format_bytes(most)} "
                f"(config.MOST_CACHED_BLOCKS), but one has {format_bytes(size)}."
            )
        return size <= most

    def open(self, name: str, version: str, size: int) -> CachedFile:
        """Return a remote file in the cache. Reads nothing yet.

        Args:
            name: Its address, which is hashed; the disk shows it without user and query.
            version: Its ETag or commit. Another version is another file.
            size: Its length in bytes.
        """
        if not self.may_hold(size):
            raise CacheError(f"{redact(name)}: {size:,} bytes are too many to be kept.")
        layout = BlockLayout(size, self._handle.folder.block_bytes)
        path = self._handle.folder.blocks / _key(name, version, str(size))
        return CachedFile(self._handle, path, layout, redact(name))

    def mapped_file(
        self, name: str, version: str, make: Callable[[], tuple[int, Callable[[BinaryIO], None]]]
    ) -> MappedFile | None:
        """Return a file that one process makes for all; None if it cannot be kept.

        Args:
            name: What it is made from.
            version: The version of that; another one makes another file.
            make: Called if the file is missing. Returns its size and a function that writes it;
                errors of `make` itself are raised.
        """
        path = self._handle.folder.files / _key(name, version)
        number = int(path.name[:12], 16)
        file = self._find(path)
        if file is None and not self._handle.is_off:
            lock = self._handle.folder.lock
            with claimed(lock, number, number + 1, timeout_s=config.CACHE_PATIENCE_S):
                file = self._find(path)
                if file is None:
                    file = self._make(path, *make())
        return file

    def discard(self, file: MappedFile) -> None:
        """Remove a damaged file, unless another has its name; existing mappings stay valid."""

        def remove(_: CacheQuota) -> None:
            with suppress(FileNotFoundError):
                if os.path.samestat(file.stat(), file.path.lstat()):
                    file.path.unlink()

        self._handle.run_locked(remove)

    def capacity(self) -> tuple[int, int]:
        """Return how many bytes can be kept without evictions, and the block size."""
        folder = self._handle.folder
        if self.is_off:
            return 0, folder.block_bytes
        with locked_quota(folder, self._handle.limit_bytes) as quota:
            return quota.capacity(), folder.block_bytes

    def info(self) -> CacheInfo:
        """Return what the cache has, counted now."""
        folder = self._handle.folder
        with locked_quota(folder, self._handle.limit_bytes):
            files = [(file.shown_name, file.layout, file.nbytes) for _, file in block_files(folder)]
            sizes = [state.st_size for _, state, _ in mapped_files(folder)]
        infos = [
            CachedFileInfo(name, layout.size_bytes, min(nbytes - layout.data_at, layout.size_bytes))
            for name, layout, nbytes in files
        ]
        infos.sort(key=lambda file: file.name)
        used = sum(nbytes for *_, nbytes in files) + sum(sizes)
        return CacheInfo(folder.path, self._handle.limit_bytes, used, tuple(infos), len(sizes))

    def clear(self) -> int:
        """Delete what the cache has, and nothing else; return the bytes freed.

        Processes that use the cache continue, and fetch again.
        """
        folder = self._handle.folder
        if not folder.is_writable():
            raise CacheError(f"{folder.path}: this user may only read the cache, not clear it.")
        with locked_quota(folder, self._handle.limit_bytes) as quota:
            return quota.clear()

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int, int]]:
        return Cache, self._arguments

    def _find(self, path: Path) -> MappedFile | None:
        if self._handle.is_off:
            with suppress(OSError), locked(self._handle.folder.lock):
                return find_mapped_file(path)
            return None
        return self._handle.run_locked(lambda _: find_mapped_file(path))

    def _make(
        self, path: Path, nbytes: int, write: Callable[[BinaryIO], None]
    ) -> MappedFile | None:
        def begin(quota: CacheQuota) -> tuple[Path, int] | None:
            if quota.reserve(nbytes):
                return begin_mapped_file(path, nbytes)
            self._handle.warn_full(nbytes)
            return None

        begun = self._handle.run_locked(begin)
        if begun is None:
            return None
        try:
            return finish_mapped_file(*begun, path, write)
        except OSError as error:
            self._handle.turn_off(error)
            return None


def _key(*parts: str) -> str:
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
