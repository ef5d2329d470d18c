# SPDX-License-Identifier: Apache-2.0
"""The bytes of a remote file, seen through the cache on a local disk."""

from __future__ import annotations

from functools import lru_cache

from robostream.storage.cache import Cache, CachedFile, cache_limit
from robostream.storage.files.location import CacheSettings
from robostream.storage.files.store import whole
from robostream.storage.remote.remote_source import RemoteSource


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
