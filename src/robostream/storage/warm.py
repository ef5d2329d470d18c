# SPDX-License-Identifier: Apache-2.0
"""Fills the cache ahead of a run, up to its capacity."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from robostream.errors import CacheError
from robostream.storage.block_layout import BlockLayout
from robostream.storage.opener import CachedSource, FileOpener

# Large enough to amortize a round trip, small enough that an interrupt loses little.
_PIECE_BYTES = 4 * 1024**2


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
            raise CacheError(
                f"{opener.location.url}: nothing of it is kept, so nothing is fetched."
            )
        self._opener, self._cache, self._requests = opener, opener.cache, requests
        with _CancellingPool(requests) as pool:
            sizes = pool.map(lambda file: opener.open(file).size(), files)
            self.sizes = dict(zip(files, sizes, strict=True))
        self.pieces = list(fitting_pieces(self.sizes, *self._cache.capacity()))

    def run(self, on_bytes: Callable[[int], None]) -> None:
        """Fetch what the cache lacks, and report the bytes of each piece. Blocks."""

        def fetch(piece: FilePiece) -> int:
            self._opener.open(piece.file).ensure_cached(piece.start, piece.stop)
            return piece.stop - piece.start

        with _CancellingPool(self._requests) as pool:
            for nbytes in pool.map(fetch, self.pieces):
                on_bytes(nbytes)
                if self._cache.is_off:
                    raise CacheError(
                        f"{self._cache.folder}: the cache cannot be written, so nothing more is "
                        "fetched. Check the disk, or choose another folder."
                    )

    def kept_bytes(self) -> int:
        """Return how many bytes of the files the cache has now."""
        sources = (self._opener.open(file) for file in self.sizes)
        return sum(source.kept_bytes() for source in sources if isinstance(source, CachedSource))


class _CancellingPool(ThreadPoolExecutor):
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
