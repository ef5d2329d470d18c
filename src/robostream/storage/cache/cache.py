# SPDX-License-Identifier: Apache-2.0
"""A cache of remote bytes on local disk, shared by all processes of a machine without a server."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from robostream import config
from robostream.storage.cache.cached_file import CachedFile
from robostream.storage.cache.folder import Folder, open_folder
from robostream.storage.cache.keeper import Keeper
from robostream.storage.cache.layout import Layout, redacted
from robostream.storage.cache.room import block_files, locked_room


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
        self._keeper = Keeper(opened, limit_bytes)
        if refusal is not None:
            self._keeper.give_up(refusal)

    def open(self, name: str, version: str, size: int) -> CachedFile:
        """Return a remote file seen through the cache; touches nothing yet.

        Args:
            name: Its address. It is hashed; what is written down is without user and query.
            version: Its ETag or commit. Another version is another file.
            size: Its length in bytes.
        """
        key = hashlib.sha256("\0".join((name, version, str(size))).encode()).hexdigest()
        layout = Layout(size, self._keeper.folder.block_bytes)
        return CachedFile(self._keeper, self._keeper.folder.blocks / key, layout, redacted(name))

    def info(self) -> CacheInfo:
        """Return what the cache has, counted now."""
        folder = self._keeper.folder
        with locked_room(folder, self._keeper.limit_bytes):
            files = [(file.shown_name, file.layout, file.nbytes) for _, file in block_files(folder)]
        kept = sorted(
            (
                KeptFile(name, layout.size_bytes, min(nbytes - layout.data_at, layout.size_bytes))
                for name, layout, nbytes in files
            ),
            key=lambda file: file.name,
        )
        used = sum(nbytes for *_, nbytes in files)
        return CacheInfo(folder.path, self._keeper.limit_bytes, used, tuple(kept))

    def clear(self) -> int:
        """Delete what the cache fetched, and nothing else; returns the bytes that are free now.

        Processes that are using the cache go on and fetch again.
        """
        with locked_room(self._keeper.folder, self._keeper.limit_bytes) as room:
            return room.clear()

    def __reduce__(self) -> tuple[type[Cache], tuple[Path, int, int]]:
        return Cache, self._arguments


def cache_limit(folder: Path, limit: float | str | None) -> int:
    """Return a limit in bytes: what was given, such as "200GB", or half of what the disk has left.

    What the cache holds already counts as left, so that the limit stays the same as it fills.
    """
    if limit is not None:
        return config.parse_bytes(limit)
    there = folder.absolute()
    while not there.exists():
        there = there.parent
    disk = os.statvfs(there)
    left = disk.f_bavail * disk.f_frsize + sum(map(_space_of, folder.glob("blocks/*")))
    return int(left * config.CACHE_SHARE_OF_DISK)


def _space_of(path: Path) -> int:
    try:
        return path.stat().st_blocks * 512
    except FileNotFoundError:  # dropped just now
        return 0
