# SPDX-License-Identifier: Apache-2.0
"""From a location to its store and files; remote files are read through the cache."""

from __future__ import annotations

import logging
import threading
from functools import lru_cache

from robostream.byte_sizes import format_bytes
from robostream.errors import StorageError
from robostream.storage.byte_source import ByteSource, Store, check_length
from robostream.storage.cache import Cache, cache_limit
from robostream.storage.cached_file import CachedFile
from robostream.storage.local_store import LocalStore
from robostream.storage.location import CacheSettings, Location, check_relative_path
from robostream.storage.lru import LruCache
from robostream.storage.remote_source import RemoteSource
from robostream.storage.retry import Traffic

logger = logging.getLogger(__name__)

# Roots on servers without versions that a warning has named.
_unversioned: set[str] = set()

# Remote files whose size and version are remembered.
_MAX_OPENED = 4096


class CachedSource:
    """A byte source that fetches what the cache lacks, and keeps it. Thread-safe.

    Attributes:
        remote: The file without the cache.
    """

    def __init__(self, remote: RemoteSource, cache: Cache) -> None:
        self.name = remote.name
        self.identity = remote.identity
        self.remote = remote
        self._cache = cache
        self._file: CachedFile | None = None

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self.remote.size()

    def version(self) -> str:
        """Return a text that changes with the file; empty if the server has none."""
        return self.remote.version()

    def expect(self, size: int, version: str) -> None:
        """Set the file's size and version; raise if it is known to have others."""
        self.remote.expect(size, version)

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        file = self._open()
        if file is None or stop > file.size_bytes:
            return self.remote.read(start, stop)
        self.remote.traffic.add(bytes_read=stop - start)
        return check_length(file.read(start, stop, self.remote.fetch), start, stop, self.name)

    def ensure_cached(self, start: int, stop: int) -> None:
        """Fetch what the cache lacks of [start, stop), with one request for each gap."""
        file = self._open()
        if file is not None:
            file.ensure_cached(start, min(stop, file.size_bytes), self.remote.fetch)

    def prefetch(self, start: int, stop: int, next_use: float) -> None:
        """Keep [start, stop) available until `release`; see `CachedFile.set_next_use`."""
        file = self._open()
        if file is not None:
            file.prefetch(start, min(stop, file.size_bytes), next_use, self.remote.fetch)

    def release(self, start: int, stop: int, next_use: float) -> None:
        """Record that [start, stop) was read, and the time of its next use."""
        file = self._open()
        if file is not None:
            file.release(start, min(stop, file.size_bytes), next_use)

    def kept_bytes(self) -> int:
        """Return how many bytes of the file the cache has."""
        file = self._open()
        if file is None:
            return 0
        missing = file.missing(0, file.size_bytes)
        return file.size_bytes - sum(stop - start for start, stop in missing)

    def _open(self) -> CachedFile | None:
        """Return the file in the cache; None if it has no version or is too large to keep."""
        version = self.remote.version()
        if self._file is None and version and self._cache.may_hold(self.remote.size()):
            version = f"{version} of {self.identity}"  # other servers may use the same name
            self._file = self._cache.open(self.name, version, self.remote.size())
        return self._file


@lru_cache(maxsize=16)
def open_cache(settings: CacheSettings) -> Cache:
    """Return the cache with these settings, one object per process."""
    return Cache(settings.folder, cache_limit(settings.folder, settings.limit))


class FileOpener:
    """Opens the files of one location. For one process.

    Attributes:
        location: The location.
        cache: The cache of its files, or None.
        traffic: Counts the requests of its files.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.traffic = Traffic()
        self._store = open_store(location, self.traffic)
        settings = location.cache if location.is_remote else None
        self.cache = None if settings is None else open_cache(settings)
        # A remote file that is opened again is the same object, with its size and version.
        self._opened: LruCache[str, ByteSource] = LruCache(_MAX_OPENED)
        self._lock = threading.Lock()

    def open(self, file: str) -> ByteSource:
        """Return a file by its path relative to the location. Reads nothing yet."""
        with self._lock:
            source = self._opened.get(file)
            if source is None:
                source = self._store.open(check_relative_path(file))
                if isinstance(source, RemoteSource):
                    if self.cache is not None:
                        source = CachedSource(source, self.cache)
                    self._opened.put(file, source)
            return source

    def open_remote(self, file: str) -> ByteSource:
        """Return a file that is read without the cache."""
        source = self.open(file)
        return source.remote if isinstance(source, CachedSource) else source

    def prefetch(self, file: str, start: int, stop: int, next_use: float) -> None:
        """Keep bytes of a file available until `release`, if there is a cache.

        The cache evicts the bytes with the latest next use; see `CachedFile.set_next_use`.
        """
        source = self.open(file)
        if isinstance(source, CachedSource):
            source.prefetch(start, stop, next_use)

    def release(self, file: str, start: int, stop: int, next_use: float) -> None:
        """Record that bytes of a file were read, and the time of their next use."""
        source = self.open(file)
        if isinstance(source, CachedSource):
            source.release(start, stop, next_use)

    def read_file(self, file: str, *, max_bytes: int, setting: str = "") -> bytes:
        """Return all bytes of a small file; raise above `max_bytes`, naming the `setting`."""
        source = self.open(file)
        size = source.size()
        if not source.version() and self.location.url not in _unversioned:
            _unversioned.add(self.location.url)
            logger.warning(
                "%s: the server gives no version of its files (no ETag, no Last-Modified). So "
                "nothing of them is cached between runs, and a file that is replaced during a run "
                "is noticed only if its size differs or it cannot be decoded.",
                self.location.url,
            )
        if size > max_bytes:
            cure = f" If it is meant to be so large, set {setting} to more." if setting else ""
            raise StorageError(
                f"{source.name}: want at most {format_bytes(max_bytes)}, found "
                f"{format_bytes(size)}.{cure}"
            )
        return source.read(0, size)

    def list_files(self, folder: str, suffix: str) -> dict[str, int]:
        """Return the size of each file with a suffix below a folder, sorted by relative path."""
        sizes = self._store.list_files(check_relative_path(folder))
        return {file: sizes[file] for file in sorted(sizes) if file.endswith(suffix)}


def open_store(location: Location, traffic: Traffic) -> Store:
    """Return the store of a location; `traffic` counts its requests."""
    if location.local_root is not None:
        return LocalStore(location.local_root)
    scheme = location.url.split("://")[0]
    # Imported on demand, so that workers start faster.
    if scheme in ("http", "https"):
        from robostream.storage.http_store import WebStore

        return WebStore(location, traffic)
    if scheme == "hf":
        from robostream.storage.hub import HubStore

        return HubStore(location, traffic)
    if scheme in ("s3", "s3a"):
        from robostream.storage.s3_store import S3Store

        return S3Store(location, traffic)
    from robostream.storage.fsspec_store import FsspecStore

    return FsspecStore(location, traffic)


def open_source(location: Location, file: str) -> ByteSource:
    """Return a file by its path relative to a location. Reads nothing yet."""
    return FileOpener(location).open(file)


def list_files(location: Location, folder: str, suffix: str) -> dict[str, int]:
    """Return the size of each file with a suffix below a folder, sorted by relative path."""
    return FileOpener(location).list_files(folder, suffix)
