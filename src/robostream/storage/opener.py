# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file, seen through the cache on a local disk."""

from __future__ import annotations

import logging
import threading
from functools import lru_cache

from robostream.byte_sizes import format_bytes
from robostream.errors import StorageError
from robostream.storage.byte_source import ByteSource, Store, whole
from robostream.storage.cache import Cache, cache_limit
from robostream.storage.cached_file import CachedFile
from robostream.storage.local_store import LocalStore
from robostream.storage.location import CacheSettings, Location, confined
from robostream.storage.lru import LruCache
from robostream.storage.remote_source import RemoteSource
from robostream.storage.retry import Traffic


class CachedSource:
    """A byte source that fetches what the cache does not have, and keeps it. Thread-safe.

    Attributes:
        remote: The file itself.
    """

    def __init__(self, source: RemoteSource, cache: Cache) -> None:
        self.name = source.name
        self.identity = source.identity
        self.remote = self._source = source
        self._cache = cache
        self._file: CachedFile | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._source.size()

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""
        return self._source.version()

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version; raise if it is known to have others."""
        self._source.expect(size, version)

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        file = self._opened()
        if file is None or stop > file.size_bytes:
            return self._source.read(start, stop)
        self._source.traffic.add(bytes_read=stop - start)
        return whole(file.read(start, stop, self._source.fetch), start, stop, self.name)

    def bring(self, start: int, stop: int) -> None:
        """Fetch what the cache does not have of [start, stop), with one request for each gap."""
        file = self._opened()
        if file is not None:
            file.bring(start, min(stop, file.size_bytes), self._source.fetch)

    def prefetch(self, start: int, stop: int, when: float) -> None:
        """Have [start, stop) at hand until `release`; `CachedFile.due` says what `when` is."""
        file = self._opened()
        if file is not None:
            file.prefetch(start, min(stop, file.size_bytes), when, self._source.fetch)

    def release(self, start: int, stop: int, when: float) -> None:
        """Say that the bytes [start, stop) were read, and when they are read next."""
        file = self._opened()
        if file is not None:
            file.release(start, min(stop, file.size_bytes), when)

    def kept_bytes(self) -> int:
        """Return how many bytes of the file the cache has."""
        file = self._opened()
        if file is None:
            return 0
        return file.size_bytes - sum(
            stop - start for start, stop in file.missing(0, file.size_bytes)
        )

    def _opened(self) -> CachedFile | None:
        """Return the file in the cache; None if it cannot be kept there.

        That is if nothing tells its versions apart, or if it is said to be too large.
        """
        version = self._source.version()
        if self._file is None and version and self._cache.may_hold(self._source.size()):
            version = f"{version} of {self.identity}"  # other servers may use the same name
            self._file = self._cache.open(self.name, version, self._source.size())
        return self._file


@lru_cache(maxsize=16)
def open_cache(settings: CacheSettings) -> Cache:
    """Return the cache with these settings; the same for everybody in this process."""
    return Cache(settings.folder, cache_limit(settings.folder, settings.limit))


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
        from robostream.storage.http_store import WebStore

        return WebStore(location, traffic)
    if kind == "hf":
        from robostream.storage.hub import HubStore

        return HubStore(location, traffic)
    if kind in ("s3", "s3a"):
        from robostream.storage.s3_store import S3Store

        return S3Store(location, traffic)
    from robostream.storage.fsspec_store import FsspecStore

    return FsspecStore(location, traffic)


def open_source(location: Location, file: str) -> ByteSource:
    """Return the bytes of a file given relative to a location. Reads nothing yet."""
    return FileOpener(location).open(file)


def list_files(location: Location, folder: str, suffix: str) -> dict[str, int]:
    """Return the size of each file below a folder that ends so, by relative path, sorted."""
    return FileOpener(location).sizes(folder, suffix)
