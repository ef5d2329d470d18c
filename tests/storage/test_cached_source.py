# SPDX-License-Identifier: Apache-2.0
"""A remote file seen through the cache, over a real server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream import config
from robostream.errors import ChangedFileError, DamagedFileError
from robostream.storage import TRAFFIC, CacheSettings, FileOpener, as_location, remote_source
from robostream.testing import Fault, Proxy, Script, serve_files, start_proxy
from tests.threads import at_once

BLOCK = config.CACHE_BLOCK_BYTES
CONTENT = os.urandom(5 * BLOCK + 100)


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    """A server of one file, seen through a proxy that counts."""
    (tmp_path / "served").mkdir()
    (tmp_path / "served" / "file.bin").write_bytes(CONTENT)
    with serve_files(tmp_path / "served") as url, start_proxy(url) as running:
        yield running


def file_opener(proxy: Proxy, tmp_path: Path, limit: int | str | None = None) -> FileOpener:
    return FileOpener(as_location(proxy.url, None, CacheSettings(tmp_path / "cache", limit)))


def fetched(proxy: Proxy) -> list[int]:
    """The bytes of each answer that had any."""
    return [exchange.sent_bytes for exchange in proxy.journal() if exchange.sent_bytes]


def test_bytes_are_fetched_once(proxy: Proxy, tmp_path: Path) -> None:
    """A second reader of the same range, in any process, requests only the version."""
    for _ in range(2):
        source = file_opener(proxy, tmp_path).open("file.bin")
        assert source.read(10, BLOCK + 10) == CONTENT[10 : BLOCK + 10]

    assert fetched(proxy) == [2 * BLOCK]


def test_what_is_brought_is_there(proxy: Proxy, tmp_path: Path) -> None:
    """Gaps are fetched with one request each; reading then sends none."""
    opener = file_opener(proxy, tmp_path)
    source = opener.open("file.bin")
    source.read(2 * BLOCK, 3 * BLOCK)
    source.ensure_cached(0, len(CONTENT))

    assert source.read(0, len(CONTENT)) == CONTENT
    assert fetched(proxy) == [BLOCK, 2 * BLOCK, len(CONTENT) - 3 * BLOCK]
    counts = dict(zip(TRAFFIC, opener.traffic.take(), strict=True))
    assert counts["bytes_fetched"] == len(CONTENT)
    assert counts["bytes_read"] == BLOCK + len(CONTENT)


def test_a_small_file_is_fetched_whole(proxy: Proxy, tmp_path: Path) -> None:
    """The first read fetches all of it; its start at first, if nothing else is known of it."""
    location = as_location(proxy.url, None, CacheSettings(tmp_path / "cache", None))
    source = FileOpener(location, whole_bytes=len(CONTENT)).open("file.bin")
    source.fetch_start()
    assert [e.method for e in proxy.journal()] == ["GET"]

    assert source.read(10, BLOCK + 10) == CONTENT[10 : BLOCK + 10]
    assert source.read(0, source.size()) == CONTENT
    source.fetch_start()
    assert fetched(proxy) == [len(CONTENT)]
    later = FileOpener(location, whole_bytes=len(CONTENT)).open("file.bin")
    assert later.read(3 * BLOCK, 4 * BLOCK) == CONTENT[3 * BLOCK : 4 * BLOCK]
    assert fetched(proxy) == [len(CONTENT)]


def test_the_rest_of_a_file_takes_one_more_request(
    proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is longer than its start is completed at the first read."""
    monkeypatch.setattr(remote_source, "_START_BYTES", 2 * BLOCK)
    location = as_location(proxy.url, None, CacheSettings(tmp_path / "cache", None))
    source = FileOpener(location, whole_bytes=len(CONTENT)).open("file.bin")
    source.fetch_start()

    assert source.read(5 * BLOCK, len(CONTENT)) == CONTENT[5 * BLOCK :]
    assert source.read(0, len(CONTENT)) == CONTENT
    assert fetched(proxy) == [2 * BLOCK, len(CONTENT) - 2 * BLOCK]


@pytest.mark.parametrize("whole_bytes", [0, len(CONTENT) - 1])
def test_a_larger_file_is_fetched_as_it_is_read(
    proxy: Proxy, tmp_path: Path, whole_bytes: int
) -> None:
    """Only what a read needs."""
    location = as_location(proxy.url, None, CacheSettings(tmp_path / "cache", None))
    source = FileOpener(location, whole_bytes=whole_bytes).open("file.bin")

    assert source.read(0, 10) == CONTENT[:10]
    assert fetched(proxy) == [BLOCK]


def test_threads_ask_for_the_size_once(proxy: Proxy, tmp_path: Path) -> None:
    """Of several threads, one sends the request."""
    source = file_opener(proxy, tmp_path).open("file.bin")

    assert at_once(4, lambda _: source.size()) == [len(CONTENT)] * 4
    assert len(proxy.journal()) == 1


def test_many_who_want_the_same_ask_once(proxy: Proxy, tmp_path: Path) -> None:
    """One fetches, the others wait for it."""
    source = file_opener(proxy, tmp_path).open("file.bin")

    def fetch(_: int) -> bytes:
        source.ensure_cached(0, 3 * BLOCK)
        return source.read(5, 3 * BLOCK)

    assert at_once(4, fetch) == [CONTENT[5 : 3 * BLOCK]] * 4
    assert fetched(proxy) == [3 * BLOCK]


def test_a_file_opened_again_is_known(proxy: Proxy, tmp_path: Path) -> None:
    """One opener requests its size and version once."""
    opener = file_opener(proxy, tmp_path)
    for _ in range(3):
        assert opener.open("file.bin").size() == len(CONTENT)

    assert len(proxy.journal()) == 1


def test_versions_are_not_mixed(proxy: Proxy, tmp_path: Path) -> None:
    """Bytes of another version than the opened one are an error."""
    source = file_opener(proxy, tmp_path).open("file.bin")
    source.read(0, 10)
    proxy.play(Script((Fault("etag"),)))

    assert source.read(5, 15) == CONTENT[5:15]
    with pytest.raises(ChangedFileError, match=r"file\.bin"):
        source.read(3 * BLOCK, 4 * BLOCK)


def test_a_read_beyond_the_end_is_an_error(proxy: Proxy, tmp_path: Path) -> None:
    """As without a cache."""
    source = file_opener(proxy, tmp_path).open("file.bin")

    with pytest.raises(DamagedFileError, match="got 10 of 20"):
        source.read(len(CONTENT) - 10, len(CONTENT) + 10)


def test_a_cache_without_room_reads_from_the_server(
    proxy: Proxy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Reading continues from the server, with a warning."""
    source = file_opener(proxy, tmp_path, limit=1000).open("file.bin")

    assert [source.read(0, 100) for _ in range(2)] == [CONTENT[:100]] * 2
    assert len(fetched(proxy)) == 2
    assert "no space" in caplog.text
