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
from robostream.storage.block_layout import Layout
from robostream.storage.cache_folder import Folder, alone, claimed, open_folder
from robostream.storage.cache_handle import CacheHandle
from robostream.storage.cache_quota import CacheQuota, block_files, locked_room
from robostream.storage.cached_file import CachedFile
from robostream.storage.location import redact
from robostream.storage.mapped_file import (
    WholeFile,
    begin_whole,
    find_whole,
    whole_files,
    write_whole,
)


@dataclass(frozen=True, slots=True)
class KeptFile:
    """What the cache has of one version of one remote file; `name` shows no secrets."""

    name: str
    size_bytes: int
    kept_bytes: int


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache has."""

    folder: Path
    limit_bytes: int
    used_bytes: int
    files: tuple[KeptFile, ...]
    whole_files: int


class Cache:
    """Blocks of remote files in a folder of their own. Thread-safe; pickles as its arguments.

    Args:
        folder: Made if it is not there; refused (CacheError) if something else is in it.
        limit_bytes: What all processes together may keep; never more than the disk can spare.
        block_bytes: The unit of what is kept, a multiple of 4096; an existing cache has its own.
    """

    def __init__(
        self, folder: Path, limit_bytes: int, block_bytes: int = config.CACHE_BLOCK_BYTES
    ) -> None:
        self._arguments = (Path(folder), limit_bytes, block_bytes)
        try:
            opened, refusal = open_folder(Path(folder), block_bytes), None
        except OSError as error:
            opened, refusal = Folder(Path(folder), block_bytes), error
        self._keeper = CacheHandle(opened, limit_bytes)
        if refusal is not None:
            self._keeper.give_up(refusal)

    def may_hold(self, size: int) -> bool:
        """Return whether a file of so many bytes may be kept; say so if it is too large."""
        most = config.MOST_CACHED_BLOCKS * self._keeper.folder.block_bytes
        if size > most:
            self._keeper.tell(
                f"keeps nothing of files of more than {format_bytes(most)} "
                f"(config.MOST_CACHED_BLOCKS), but one is said to have {format_bytes(size)}."
            )
        return size <= most

    def open(self, name: str, version: str, size: int) -> CachedFile:
        """Return a remote file seen through the cache; touches nothing yet.

        Args:
            name: Its address. It is hashed; what is written down is without user and query.
            version: Its ETag or commit. Another version is another file.
            size: Its length in bytes.
        """
        if not self.may_hold(size):
            raise CacheError(f"{redact(name)}: {size:,} bytes are too many to be kept.")
        layout = Layout(size, self._keeper.folder.block_bytes)
        path = self._keeper.folder.blocks / _key(name, version, str(size))
        return CachedFile(self._keeper, path, layout, redact(name))

    def whole(
        self, name: str, version: str, make: Callable[[], tuple[int, Callable[[BinaryIO], None]]]
    ) -> WholeFile | None:
        """Return a file made by one process for all, leased; None if it cannot be kept.

        Args:
            name: What it is made of.
            version: Of which version; another one makes another file.
            make: Called if it is not there. Returns how large it will be, and what writes it; an
                error of the first is the caller's.
        """
        path = self._keeper.folder.files / _key(name, version)
        number = int(path.name[:12], 16)
        file = self._find(path)
        if file is None and not self._keeper.is_off:
            lock = self._keeper.folder.lock
            with claimed(lock, number, number + 1, patience_s=config.CACHE_PATIENCE_S):
                file = self._find(path)
                if file is None:
                    file = self._made(path, *make())
        return file

    def _find(self, path: Path) -> WholeFile | None:
        if self._keeper.is_off:
            with suppress(OSError), alone(self._keeper.folder.lock):
                return find_whole(path)
            return None
        found: list[WholeFile | None] = [None]
        self._keeper.write(lambda _: found.append(find_whole(path)))
        return found[-1]

    def _made(self, path: Path, nbytes: int, write: Callable[[BinaryIO], None]) -> WholeFile | None:
        begun: list[tuple[Path, int]] = []

        def begin(room: CacheQuota) -> None:
            if room.make(nbytes):
                begun.append(begin_whole(path, nbytes))
            else:
                self._keeper.tell_full(nbytes)

        self._keeper.write(begin)
        try:
            return write_whole(*begun[0], path, write) if begun else None
        except OSError as error:
            self._keeper.give_up(error)
            return None

    def discard(self, file: WholeFile) -> None:
        """Remove a damaged file, unless another has taken its name; existing mappings stay."""

        def remove(_: CacheQuota) -> None:
            with suppress(FileNotFoundError):
                if os.path.samestat(file.stat(), file.path.lstat()):
                    file.path.unlink()

        self._keeper.write(remove)

    @property
    def folder(self) -> Path:
        """The folder."""
        return self._keeper.folder.path

    @property
    def is_off(self) -> bool:
        """Whether the disk refused, so that this process writes nothing more."""
        return self._keeper.is_off

    def capacity(self) -> tuple[int, int]:
        """Return how many bytes can be kept without dropping some for others, and of a block."""
        if self.is_off:
            return 0, self._keeper.folder.block_bytes
        with locked_room(self._keeper.folder, self._keeper.limit_bytes) as room:
            return room.capacity(), self._keeper.folder.block_bytes

    def info(self) -> CacheInfo:
        """Return what the cache has, counted now."""
        folder = self._keeper.folder
        with locked_room(folder, self._keeper.limit_bytes):
            files = [(file.shown_name, file.layout, file.nbytes) for _, file in block_files(folder)]
            sizes = [state.st_size for _, state, _ in whole_files(folder)]
        kept = sorted(
            (
                KeptFile(name, layout.size_bytes, min(nbytes - layout.data_at, layout.size_bytes))
                for name, layout, nbytes in files
            ),
            key=lambda file: file.name,
        )
        used = sum(nbytes for *_, nbytes in files) + sum(sizes)
        return CacheInfo(folder.path, self._keeper.limit_bytes, used, tuple(kept), len(sizes))

    def clear(self) -> int:
        """Delete what the cache fetched, and nothing else; returns the bytes that are free now.

        Processes that are using the cache go on and fetch again.
        """
        folder = self._keeper.folder
        if not folder.is_writable():
            raise CacheError(f"{folder.path}: this user may only read the cache, not clear it.")
        with locked_room(folder, self._keeper.limit_bytes) as room:
            return room.clear()

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int, int]]:
        return Cache, self._arguments


def _key(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def cache_limit(folder: Path, limit: float | str | None) -> int:
    """Return a limit in bytes, of a number or a text such as "200GB".

    Without one, `ROBOSTREAM_CACHE_LIMIT` holds, and else half of what the disk has left. What the
    cache has already counts as left, so that the limit stays the same as it fills.
    """
    limit = config.cache_limit_setting() if limit is None else limit
    if limit is not None:
        return parse_bytes(limit)
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    disk = os.statvfs(there)
    left = disk.f_bavail * disk.f_frsize + sum(map(_space_of, folder.glob("[bf]*/*")))
    return int(left * config.CACHE_SHARE_OF_DISK)


def _space_of(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # dropped just now
        return 0
