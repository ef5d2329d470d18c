# SPDX-License-Identifier: Apache-2.0
"""The one door to bytes: from a location to its store, from there to a file."""

from __future__ import annotations

import logging
import threading

from robostream.byte_sizes import format_bytes
from robostream.errors import StorageError
from robostream.storage.cached_source import CachedSource, open_cache
from robostream.storage.files.local_store import LocalStore
from robostream.storage.files.location import Location
from robostream.storage.files.lru import LruCache
from robostream.storage.files.names import confined
from robostream.storage.files.store import ByteSource, Store
from robostream.storage.remote.remote_source import RemoteSource
from robostream.storage.remote.traffic import Traffic

logger = logging.getLogger(__name__)

# Roots on servers without versions that were warned of.
_unversioned: set[str] = set()

# Remote files whose size and version are remembered.
_OPENED = 4096


class FileOpener:
    """Opens the files of one location. For one process.

    Attributes:
        location: The location.
        cache: Where bytes of its files are kept; None for nowhere.
        traffic: What was asked of servers through this door.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.traffic = Traffic()
        self._store = open_store(location, self.traffic)
        settings = location.cache if location.is_remote else None
        self.cache = None if settings is None else open_cache(settings)
        # A remote file that is opened again is the one that was opened before.
        self._opened: LruCache[str, ByteSource] = LruCache(_OPENED)
        self._lock = threading.Lock()

    def open(self, file: str) -> ByteSource:
        """Return the bytes of a file given relative to the location. Reads nothing yet."""
        with self._lock:
            source = self._opened.get(file)
            if source is None:
                source = self._store.open(confined(file))
                if isinstance(source, RemoteSource):
                    if self.cache is not None:
                        source = CachedSource(source, self.cache)
                    self._opened.put(file, source)
            return source

    def open_remote(self, file: str) -> ByteSource:
        """Return the bytes of a file as its server gives them; the cache keeps nothing of them."""
        source = self.open(file)
        return source.remote if isinstance(source, CachedSource) else source

    def prefetch(self, file: str, start: int, stop: int, when: float) -> None:
        """Have bytes of a file at hand until `release`, where there is a cache.

        `when` is the time of their next use, by which the cache keeps those needed soonest:
        `CachedFile.due` says how it is counted.
        """
        source = self.open(file)
        if isinstance(source, CachedSource):
            source.prefetch(start, stop, when)

    def release(self, file: str, start: int, stop: int, when: float) -> None:
        """Say that bytes of a file were read, and when they are read next."""
        source = self.open(file)
        if isinstance(source, CachedSource):
            source.release(start, stop, when)

    def read_whole(self, file: str, *, most_bytes: int, setting: str = "") -> bytes:
        """Return all bytes of a small file; refuse one above `most_bytes`, which `setting` sets."""
        source = self.open(file)
        size = source.size()
        if not source.version() and self.location.url not in _unversioned:
            _unversioned.add(self.location.url)
            logger.warning(
                "%s: the server gives no version of its files (ETag or Last-Modified). So nothing "
                "of them is kept from run to run, and a file that is replaced during a run is "
                "noticed only if it has another size or cannot be decoded.",
                self.location.url,
            )
        if size > most_bytes:
            cure = f" If it is meant to be so large, set {setting} to more." if setting else ""
            raise StorageError(
                f"{source.name}: want at most {format_bytes(most_bytes)}, found "
                f"{format_bytes(size)}.{cure}"
            )
        return source.read(0, size)

    def sizes(self, folder: str, suffix: str) -> dict[str, int]:
        """Return the size of each file below a folder that ends so, by relative path, sorted."""
        sizes = self._store.sizes(confined(folder))
        return {file: sizes[file] for file in sorted(sizes) if file.endswith(suffix)}


def open_store(location: Location, traffic: Traffic) -> Store:
    """Return the store of a location, whose requests are counted."""
    if location.local_root is not None:
        return LocalStore(location.local_root)
    kind = location.url.split("://")[0]
    # Each is loaded when it is first needed: workers start faster with what they use alone.
    if kind in ("http", "https"):
        from robostream.storage.stores.web_store import WebStore

        return WebStore(location, traffic)
    if kind == "hf":
        from robostream.storage.stores.hub_store import HubStore

        return HubStore(location, traffic)
    if kind in ("s3", "s3a"):
        from robostream.storage.stores.s3_store import S3Store

        return S3Store(location, traffic)
    from robostream.storage.stores.fsspec_store import FsspecStore

    return FsspecStore(location, traffic)


def open_source(location: Location, file: str) -> ByteSource:
    """Return the bytes of a file given relative to a location. Reads nothing yet."""
    return FileOpener(location).open(file)


def list_files(location: Location, folder: str, suffix: str) -> dict[str, int]:
    """Return the size of each file below a folder that ends so, by relative path, sorted."""
    return FileOpener(location).sizes(folder, suffix)
