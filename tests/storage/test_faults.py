# SPDX-License-Identifier: Apache-2.0
"""One file through a proxy that fails by script."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from robostream import config
from robostream.errors import ChangedFileError, UnreachableError
from robostream.storage import TRAFFIC, FileOpener, as_location
from robostream.testing import Fault, Proxy, Script, serve_files, start_proxy

CONTENT = os.urandom(100_000)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of one file."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "file.bin").write_bytes(CONTENT)
    with serve_files(folder) as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """A proxy before it."""
    with start_proxy(server) as running:
        yield running


def counts_of(opener: FileOpener) -> dict[str, float]:
    return dict(zip(TRAFFIC, opener.traffic.take(), strict=True))


@pytest.mark.parametrize(
    "fault",
    [
        Fault("status", status=408, times=2),
        Fault("status", status=429, retry_after_s=1, times=1),
        Fault("status", status=429, retry_after_s=1, as_date=True, times=1),
        Fault("status", status=503, times=2),
        Fault("reset", times=2),
        Fault("reset", at_bytes=0, times=2),
        Fault("truncate", times=2),
        Fault("short", times=2),
        Fault("overlong", times=2),
        Fault("wrong_range", times=2),
        Fault("ignore_range", times=2),
    ],
    ids=lambda fault: f"{fault.kind}-{fault.status}-{fault.as_date}-{fault.at_bytes}",
)
def test_what_passes_is_never_seen(proxy: Proxy, fault: Fault) -> None:
    """The bytes are right, and the counters show the retries."""
    proxy.play(Script((fault,)))
    opener = FileOpener(as_location(proxy.url))
    source = opener.open("file.bin")

    assert source.read(1000, 60_000) == CONTENT[1000:60_000]
    counts = counts_of(opener)
    assert counts["retries"] == fault.times
    assert counts["requests"] == 1 + (fault.times or 0)
    assert counts["bytes_fetched"] == counts["bytes_read"] == 59_000
    assert (counts["throttled_s"] > 0) == (fault.status == 429)


def test_a_connection_that_was_closed_while_idle_counts(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is repeated at once, even without retries, and both requests are counted."""
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "0")
    opener = FileOpener(as_location(proxy.url))
    source = opener.open("file.bin")
    source.read(0, 10)
    counts_of(opener)
    proxy.play(Script((Fault("reset", at_bytes=0, times=1),)))

    assert source.read(10, 20) == CONTENT[10:20]
    counts = counts_of(opener)
    assert (counts["requests"], counts["retries"]) == (2, 1)
    assert len(proxy.journal()) == 3


def test_silence_is_a_stall(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response that stops coming is requested again."""
    monkeypatch.setattr(config, "REMOTE_TIMEOUT_S", 0.3)
    proxy.play(Script((Fault("stall", times=1, at_bytes=500),)))
    opener = FileOpener(as_location(proxy.url))

    assert opener.open("file.bin").read(0, 60_000) == CONTENT[:60_000]
    assert counts_of(opener)["stalls"] >= 1


def test_a_file_that_changes_is_an_error(proxy: Proxy) -> None:
    """Parts of two versions are never mixed."""
    proxy.play(Script((Fault("etag", skip=1),)))
    source = FileOpener(as_location(proxy.url)).open("file.bin")
    source.read(0, 10)

    with pytest.raises(ChangedFileError, match=r"file\.bin: the file was changed while"):
        source.read(10, 20)


def test_giving_up_names_the_file(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the attempts and the last cause, and without the query of the address."""
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "1")
    proxy.play(Script((Fault("status", status=502),)))
    source = FileOpener(as_location(f"{proxy.url}?sig=hidden")).open("file.bin")

    with pytest.raises(
        UnreachableError, match=r"file\.bin: gave up after 2 attempts.*502"
    ) as error:
        source.size()
    assert "hidden" not in str(error.value)
    assert len(proxy.journal()) == 2
