# SPDX-License-Identifier: Apache-2.0
"""From a location to its store and files, through the cache; filling the cache ahead of a run."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from robostream.byte_sizes import format_bytes
from robostream.errors import CacheError, StorageError
from robostream.storage.block_file import BlockLayout
from robostream.storage.byte_source import ByteSource, LocalSource, LocalStore
from robostream.storage.cache import Cache, cache_limit
from robostream.storage.location import CacheSettings, Location, check_relative_path
from robostream.storage.lru import LruCache
from robostream.storage.retry import Traffic

if TYPE_CHECKING:
    from robostream.storage.remote_source import RemoteFile, RemoteSource

logger = logging.getLogger(__name__)

# Roots on servers without versions that a warning has named.
_unversioned: set[str] = set()
# Remote files whose size and version are remembered.
_MAX_OPENED = 4096
# Pieces that a CacheWarmer fetches: large enough to amortize a round trip, small enough that an
# interrupt loses little.
_PIECE_BYTES = 4 * 1024**2


@lru_cache(maxsize=16)
def open_cache(settings: CacheSettings) -> Cache:
    """Return the cache with these settings, one object per process."""
    return Cache(settings.folder, cache_limit(settings.folder, settings.limit))


class Store(Protocol):
    """The files below one root, by relative path with slashes."""

    def open(self, file: str) -> LocalSource | RemoteFile:
        """Return a file. Reads nothing yet."""

    def list_files(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder; raise NoListingError if it cannot."""


class FileOpener:
    """Opens the files of one location. For one process.

    Args:
        location: The location.
        whole_bytes: A remote file of at most this size is fetched whole at its first read, if
            there is a cache.
        traffic: Counts the requests of its files, perhaps among those of other locations.

    Attributes:
        location: The location.
        cache: The cache of its files, or None.
        traffic: The same, or a new one if none was given.
    """

    def __init__(
        self, location: Location, *, whole_bytes: int = 0, traffic: Traffic | None = None
    ) -> None:
        self.location = location
        self._whole_bytes = whole_bytes
        self.traffic = traffic or Traffic()
        self._store = open_store(location, self.traffic)
        settings = location.cache if location.is_remote else None
        self.cache = None if settings is None else open_cache(settings)
        # A remote file that is opened again is the same object, with its size and version.
        self._opened: LruCache[str, RemoteSource] = LruCache(_MAX_OPENED)
        self._lock = threading.Lock()

    def open(self, file: str) -> LocalSource | RemoteSource:
        """Return a file by its path relative to the location. Reads nothing yet."""
        with self._lock:
            source = self._opened.get(file)
            if source is not None:
                return source
            opened = self._store.open(check_relative_path(file))
            if isinstance(opened, LocalSource):
                return opened
            from robostream.storage.remote_source import RemoteSource  # as in `open_store`

            source = RemoteSource(opened, self.traffic, self.cache, self._whole_bytes)
            return self._opened.put(file, source)

    def open_remote(self, file: str) -> ByteSource:
        """Return a file that is read without the cache."""
        source = self.open(file)
        return source if isinstance(source, LocalSource) else source.without_cache()

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


class FilePiece(NamedTuple):
    """Bytes [start, stop) of a file."""

    file: str
    start: int
    stop: int


class CacheWarmer:
    """Fetches remote files into the cache. May be interrupted: what it fetched stays.

    Args:
        opener: Opens the files; it must have a cache.
        files: Their names, the most important first.
        requests: The number of concurrent requests.

    Attributes:
        sizes: The size of each file.
        pieces: The pieces to fetch: all of the files, or as much as fits into the cache.
    """

    def __init__(self, opener: FileOpener, files: Sequence[str], *, requests: int) -> None:
        if opener.cache is None:
            raise CacheError(f"{opener.location.url}: there is no cache to fetch files into.")
        self._opener, self._cache, self._requests = opener, opener.cache, requests
        with CancellingPool(requests) as pool:
            sizes = pool.map(lambda file: opener.open(file).size(), files)
            self.sizes = dict(zip(files, sizes, strict=True))
        block_bytes = self._cache.folder.block_bytes
        self.pieces = list(fitting_pieces(self.sizes, self._cache.capacity(), block_bytes))

    def run(self, on_bytes: Callable[[int], None]) -> None:
        """Fetch what the cache lacks, and report the bytes of each piece. Blocks."""

        def fetch(piece: FilePiece) -> int:
            self._opener.open(piece.file).ensure_cached(piece.start, piece.stop)
            return piece.stop - piece.start

        with CancellingPool(self._requests) as pool:
            for nbytes in pool.map(fetch, self.pieces):
                on_bytes(nbytes)
                if self._cache.is_off:
                    raise CacheError(
                        f"{self._cache.folder.path}: the cache cannot be written, so nothing more "
                        "is fetched. Check the disk, or choose another folder."
                    )

    def kept_bytes(self) -> int:
        """Return how many bytes of the files the cache has now."""
        sources = (self._opener.open(file) for file in self.sizes)
        return sum(source.kept_bytes() for source in sources if not isinstance(source, LocalSource))


class CancellingPool(ThreadPoolExecutor):
    """A thread pool that cancels pending work on exit."""

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def fitting_pieces(
    sizes: Mapping[str, int], free_bytes: int, block_bytes: int
) -> Iterator[FilePiece]:
    """Yield pieces of files, in order, while all of them fit into `free_bytes` together. Pure."""
    for file, size in sizes.items():
        free_bytes -= BlockLayout(size, block_bytes).data_at
        for start, stop in itertools.pairwise([*range(0, size, _PIECE_BYTES), size]):
            free_bytes -= -(-(stop - start) // block_bytes) * block_bytes
            if free_bytes < 0:
                return
            yield FilePiece(file, start, stop)
