# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream import config
from robostream.errors import CacheError
from robostream.storage import TRAFFIC, CacheSettings, CacheWarmer, FileOpener, as_location
from robostream.storage.opener import fitting_pieces
from robostream.testing import Proxy, serve_files, start_proxy

MIB = 1024**2
FILES = {"a.mp4": os.urandom(9 * MIB + 5), "b.mp4": b"", "c.mp4": os.urandom(MIB)}
SIZE = sum(map(len, FILES.values()))


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A server of some files, seen through a proxy that counts."""
    folder = tmp_path_factory.mktemp("served")
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    with serve_files(folder) as url, start_proxy(url) as running:
        yield running


def opener_for(proxy: Proxy, folder: Path, limit: int | str = "1GB") -> FileOpener:
    return FileOpener(as_location(proxy.url, None, CacheSettings(folder / "cache", limit)))


def warm(opener: FileOpener) -> tuple[CacheWarmer, int]:
    """Fill the cache, and return what that fetched."""
    warming = CacheWarmer(opener, list(FILES), requests=3)
    seen: list[int] = []
    warming.run(seen.append)

    assert sum(seen) == sum(piece.stop - piece.start for piece in warming.pieces)
    return warming, int(dict(zip(TRAFFIC, opener.traffic.take(), strict=True))["bytes_fetched"])


def test_what_is_missing_is_fetched_once(proxy: Proxy, tmp_path: Path) -> None:
    """Cached bytes are not fetched; a second call fetches nothing."""
    opener_for(proxy, tmp_path).open("a.mp4").read(5 * MIB, 6 * MIB)
    warming, fetched = warm(opener_for(proxy, tmp_path))

    assert fetched == SIZE - MIB
    assert warming.kept_bytes() == SIZE
    assert warm(opener_for(proxy, tmp_path))[1] == 0
    opener = opener_for(proxy, tmp_path)
    assert {name: opener.open(name).read(0, len(c)) for name, c in FILES.items()} == FILES


def test_no_more_is_fetched_than_fits(proxy: Proxy, tmp_path: Path) -> None:
    """No fetched byte is evicted for the rest of the same dataset."""
    warming, fetched = warm(opener_for(proxy, tmp_path, limit="7MiB"))

    assert {piece.file for piece in warming.pieces} == {"a.mp4"}
    assert fetched == warming.kept_bytes() == 4 * MIB


def test_without_a_cache_nothing_is_fetched(proxy: Proxy) -> None:
    """Without a cache there is nothing to fill."""
    with pytest.raises(CacheError, match="there is no cache to fetch files into"):
        CacheWarmer(FileOpener(as_location(proxy.url)), list(FILES), requests=3)


def test_a_disk_that_refuses_ends_it(proxy: Proxy, tmp_path: Path) -> None:
    """Warming stops when the cache cannot be written."""
    warming = CacheWarmer(opener_for(proxy, tmp_path), list(FILES), requests=1)
    (tmp_path / "cache/blocks").rmdir()

    with pytest.raises(CacheError, match="cannot be written"):
        warming.run(lambda _: None)


@given(
    sizes=st.lists(st.integers(0, 50 * MIB), max_size=8),
    free_bytes=st.integers(0, 200 * MIB),
)
def test_pieces_cover_files_in_order_within_the_room(sizes: list[int], free_bytes: int) -> None:
    """The pieces are a prefix of all files, and all of them if they fit."""
    files = {str(number): size for number, size in enumerate(sizes)}
    pieces = list(fitting_pieces(files, free_bytes, config.CACHE_BLOCK_BYTES))
    laid = [(file, 0) for file in files if files[file]]
    for piece in pieces:
        assert (piece.file, piece.start) == laid[0]
        assert piece.start < piece.stop
        laid[0] = (piece.file, piece.stop)
        if piece.stop == files[piece.file]:
            laid.pop(0)

    assert sum(piece.stop - piece.start for piece in pieces) <= free_bytes
    if free_bytes >= sum(sizes) + len(sizes) * MIB:
        assert laid == []
