# SPDX-License-Identifier: Apache-2.0
"""From a location to its store and its open files; filling the cache ahead of a run."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.errors import CacheError, StorageError
from robostream.storage.block_file import BlockLayout
from robostream.storage.byte_source import ByteSource, LocalSource, LocalStore
from robostream.storage.cache import Cache, cache_limit
from robostream.storage.location import CacheSettings, Location, check_relative_path
from robostream.storage.retry import Traffic

if TYPE_CHECKING:
    from robostream.storage.remote_source import RemoteFile, RemoteSource

logger = logging.getLogger(__name__)

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

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

    If there is a cache, a remote file of at most `whole_bytes` is fetched whole at its first read.
    `traffic` counts the requests of its files, perhaps among those of other locations.
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

    def read_json(self, file: str) -> bytes:
        """Return the bytes of a JSON file, within the limit; raise MissingFileError without it."""
        source, max_bytes = self.open(file), config.json_limit_bytes()
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
            raise StorageError(
                f"{source.name}: want at most {format_bytes(max_bytes)}, found "
                f"{format_bytes(size)}. If it is meant to be so large, set "
                f"{config.JSON_LIMIT_NAME} to more."
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
    # Imported on demand, so that workers start faster.
    scheme = location.url.split("://")[0]
    if scheme in ("http", "https"):
        from robostream.storage.http_store import WebStore

        return WebStore(location, traffic)
    if scheme == "hf":
        from robostream.storage.hub import HubStore

        return HubStore(location, traffic)
    from robostream.storage.cloud_stores import FsspecStore, S3Store

    is_s3 = scheme in ("s3", "s3a")
    return S3Store(location, traffic) if is_s3 else FsspecStore(location, traffic)


class FilePiece(NamedTuple):
    """Bytes [start, stop) of a file."""

    file: str
    start: int
    stop: int


class CacheWarmer:
    """Fetches remote files into the cache. May be interrupted: what it fetched stays.

    The most important files come first. `pieces` are those to fetch: all of the files, or as much
    as fits into the cache.
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


class LruCache(Generic[K, V]):
    """Values by key, within a budget of weight: the least recently used go. For one thread.

    By default a value weighs 1, so that the budget counts values. The newest value stays, however
    much it weighs. `drop` is called with each value that leaves the cache.
    """

    def __init__(
        self,
        budget: int,
        *,
        weigh: Callable[[V], int] = lambda _: 1,
        drop: Callable[[V], object] = lambda _: None,
    ) -> None:
        self.budget = budget
        self.weight = 0
        self.has_evicted = False  # whether a value ever made space for another
        self._evictions = 0
        self._weigh = weigh
        self._drop = drop
        self._values: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[K]:
        return iter(self._values)  # the least recently used first

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        """Return a value and mark it as used; None if it is missing."""
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> V:
        """Add a value, evicting others as the budget requires, and return it."""
        self.forget(key)
        weight = self._weigh(value)
        for _ in self.evict_for(weight):
            pass
        self._values[key] = value
        self.weight += weight
        return value

    def evict_for(self, weight: int) -> Iterator[V]:
        """Evict and yield values, the least recently used first, until `weight` more fits."""
        while self._values and self.weight + weight > self.budget:
            _, oldest = self._values.popitem(last=False)
            self._evictions += 1
            self.has_evicted = True
            self._remove(oldest)
            yield oldest

    def take_evictions(self) -> int:
        """Return the number of evictions since the last call."""
        evictions, self._evictions = self._evictions, 0
        return evictions

    def forget(self, key: K) -> None:
        """Remove a value if it is there."""
        value = self._values.pop(key, None)
        if value is not None:
            self._remove(value)

    def clear(self) -> None:
        """Remove all values."""
        while self._values:
            self._remove(self._values.popitem()[1])

    def _remove(self, value: V) -> None:
        self.weight -= self._weigh(value)
        self._drop(value)
