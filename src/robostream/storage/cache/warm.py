# SPDX-License-Identifier: Apache-2.0
"""Filling the cache ahead of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from robostream.storage.cache.cached_file import CachedFile, Fetch

_PIECE_BYTES = 16 * 1024**2


def warm(
    sources: Iterable[tuple[CachedFile, Fetch]],
    *,
    threads: int,
    on_bytes: Callable[[int], None],
) -> int:
    """Fetch what the cache does not have of some files; returns the bytes that were fetched.

    Args:
        sources: Files, and what fetches a range of each.
        threads: Ranges fetched at a time.
        on_bytes: Called from those threads with the bytes of each piece that is there now.
    """

    def fetch_piece(piece: tuple[CachedFile, Fetch, int]) -> int:
        file, fetch, start = piece
        stop = min(start + _PIECE_BYTES, file.size_bytes)
        fetched = 0
        with file.claim(start, stop) as missing:
            for gap in missing:
                file.fill(gap[0], fetch(*gap))
                fetched += gap[1] - gap[0]
        on_bytes(stop - start)
        return fetched

    pieces = [
        (file, fetch, start)
        for file, fetch in sources
        for start in range(0, file.size_bytes, _PIECE_BYTES)
    ]
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(fetch_piece, pieces))
