# SPDX-License-Identifier: Apache-2.0
"""Filling the cache ahead of a run, as far as it has room."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from robostream.errors import CacheError
from robostream.storage.block_layout import Layout
from robostream.storage.opener import CachedSource, FileOpener

# Large enough that a round trip costs little, small enough that an interrupt loses little.
_PIECE_BYTES = 4 * 1024**2


class FilePart(NamedTuple):
    """Bytes [start, stop) of a file."""

    file: str
    start: int
    stop: int


class CacheWarming:
    """Brings remote files to the cache. What it brought stays, so it may be interrupted.

    Args:
        door: What opens the files; it must have a cache.
        files: Their names, the most important first.
        requests: How many requests are under way at a time.

    Attributes:
        sizes: The size of each file.
        pieces: What is brought: all of the files, or as much of them as can be kept at once.
    """

    def __init__(self, door: FileOpener, files: Sequence[str], *, requests: int) -> None:
        if door.cache is None:
            raise CacheError(f"{door.location.url}: nothing of it is kept, so nothing is fetched.")
        self._door, self._cache, self._requests = door, door.cache, requests
        with self._threads() as pool:
            sizes = pool.map(lambda file: door.open(file).size(), files)
            self.sizes = dict(zip(files, sizes, strict=True))
        self.pieces = list(fitting_pieces(self.sizes, *self._cache.capacity()))

    def run(self, on_bytes: Callable[[int], None]) -> None:
        """Fetch what the cache does not have. Blocks.

        Args:
            on_bytes: Called with the bytes of each piece that is there now.
        """

        def bring(piece: FilePart) -> int:
            self._door.open(piece.file).bring(piece.start, piece.stop)
            return piece.stop - piece.start

        with self._threads() as pool:
            for nbytes in pool.map(bring, self.pieces):
                on_bytes(nbytes)
                if self._cache.is_off:
                    raise CacheError(
                        f"{self._cache.folder}: the cache cannot be written, so nothing more is "
                        "fetched. Check the disk, or choose another folder."
                    )

    def kept_bytes(self) -> int:
        """Return how many bytes of the files the cache has now."""
        sources = (self._door.open(file) for file in self.sizes)
        return sum(source.kept_bytes() for source in sources if isinstance(source, CachedSource))

    def _threads(self) -> _Threads:
        return _Threads(self._requests)


class _Threads(ThreadPoolExecutor):
    """Threads that begin nothing more once an error or an interrupt ends what they were for."""

    def __exit__(self, *_: object) -> None:
        self.shutdown(cancel_futures=True)


def fitting_pieces(
    sizes: Mapping[str, int], room_bytes: int, block_bytes: int
) -> Iterator[FilePart]:
    """Yield pieces of files, in their order, as long as all of them fit together. Pure."""
    for file, size in sizes.items():
        room_bytes -= Layout(size, block_bytes).data_at
        for start, stop in itertools.pairwise([*range(0, size, _PIECE_BYTES), size]):
            room_bytes -= -(-(stop - start) // block_bytes) * block_bytes
            if room_bytes < 0:
                return
            yield FilePart(file, start, stop)
