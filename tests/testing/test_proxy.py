# SPDX-License-Identifier: Apache-2.0
"""The proxy does what its script says, seen through plain sockets and urllib."""

from __future__ import annotations

import contextlib
import http.client
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from robostream.testing import Fault, Proxy, Script, mixed_faults, serve_files, start_proxy
from robostream.testing.faults import KINDS, Director
from robostream.testing.proxy import RequestLimit

CONTENT = bytes(range(256)) * 400
RANGE = {"Range": "bytes=1000-50999"}
WANTED = CONTENT[1000:51000]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of one file of 100 KB and an empty folder."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "file.bin").write_bytes(CONTENT)
    (folder / "folder").mkdir()
    with serve_files(folder) as url:
        yield url


@pytest.fixture
def proxy(server: str) -> Iterator[Proxy]:
    """A proxy before it that does nothing yet."""
    with start_proxy(server) as running:
        yield running


def play(proxy: Proxy, **fault: Any) -> None:
    proxy.play(Script((Fault(**fault),)))


def fetch(url: str, **headers: str) -> tuple[int, http.client.HTTPMessage, bytes]:
    """Return status, headers and body, also of an error."""
    request = urllib.request.Request(url + "/file.bin", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def converse(url: str, *, silent_after: int | None = None) -> tuple[bytes, str]:
    """Return all that comes over a bare socket after a request, and how it ended.

    After so many bytes of the answer's body, half a second without more is silence.
    """
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as sock:
        sock.sendall(b"GET /file.bin HTTP/1.1\r\nHost: x\r\nRange: bytes=1000-50999\r\n\r\n")
        received = b""
        while True:
            if silent_after is not None and len(body_of(received)) >= silent_after:
                sock.settimeout(0.5)
            try:
                piece = sock.recv(65536)
            except ConnectionResetError:
                return received, "reset"
            except TimeoutError:
                return received, "silence"
            if not piece:
                return received, "end"
            received += piece


def body_of(received: bytes) -> bytes:
    return received.partition(b"\r\n\r\n")[2]


def test_without_faults_nothing_changes(proxy: Proxy, server: str) -> None:
    """Files, ranges, listings, errors and methods pass unchanged, over one connection."""
    address = urlsplit(proxy.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    seen = []
    for method, path, headers in [
        ("GET", "/file.bin", {}),
        ("GET", "/file.bin", RANGE),
        ("HEAD", "/file.bin", {}),
        ("GET", "/", {}),
        ("GET", "/file.bin", {"Range": "bytes=200000-"}),
        ("GET", "/none?key=secret", {}),
    ]:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        seen.append((response.status, response.read()))
    connection.close()

    assert seen[0] == (200, CONTENT)
    assert seen[1] == (206, WANTED)
    assert seen[2] == (200, b"")
    assert b"file.bin" in seen[3][1]
    assert [status for status, _ in seen[3:]] == [200, 416, 404]
    assert [exchange.status for exchange in proxy.journal()] == [200, 206, 200, 200, 416, 404]
    assert proxy.journal()[1].start == 1000
    assert proxy.journal()[1].stop == 51000
    assert "secret" not in str(proxy.journal())
    assert proxy.counts()["sent_bytes"] >= len(CONTENT) + len(WANTED)
    assert proxy.counts()["faults"] == {}


@pytest.mark.parametrize("as_date", [False, True])
@pytest.mark.parametrize("status", [429, 503])
def test_refusals_carry_retry_after(proxy: Proxy, status: int, as_date: bool) -> None:
    """Retry-After is sent twice, in seconds or as a date; then the response comes."""
    play(proxy, kind="status", status=status, retry_after_s=7, as_date=as_date, times=2)
    began = time.time()
    answers = [fetch(proxy.url) for _ in range(3)]
    ended = time.time()

    assert [answer[0] for answer in answers] == [status, status, 200]
    after = answers[0][1]["Retry-After"]
    if as_date:
        # Seven seconds after it was sent, and a date has whole seconds.
        assert began + 6 <= parsedate_to_datetime(after).timestamp() <= ended + 8
    else:
        assert after == "7"
    assert proxy.counts()["faults"] == {"status": 2}
    assert proxy.counts()["answered"] == 1


@pytest.mark.parametrize("at_bytes", [0, 20_000])
def test_a_reset_is_a_reset(proxy: Proxy, at_bytes: int) -> None:
    """The connection ends with RST before the whole body is sent."""
    play(proxy, kind="reset", at_bytes=at_bytes)
    received, end = converse(proxy.url)

    assert end == "reset"
    assert len(body_of(received)) <= at_bytes
    assert proxy.journal()[0].sent_bytes == at_bytes


def test_a_truncated_body_ends_early(proxy: Proxy) -> None:
    """The headers announce the whole body, but the connection closes earlier."""
    play(proxy, kind="truncate", at_bytes=20_000)
    received, end = converse(proxy.url)

    assert end == "end"
    assert b"Content-Length: 50000" in received
    assert body_of(received) == WANTED[:20_000]
    with pytest.raises(http.client.IncompleteRead):
        fetch(proxy.url, **RANGE)


def test_a_stall_is_silence(proxy: Proxy) -> None:
    """Part of the body comes, then nothing, while the connection stays open."""
    play(proxy, kind="stall", at_bytes=20_000)
    received, end = converse(proxy.url, silent_after=20_000)

    assert end == "silence"
    assert body_of(received) == WANTED[:20_000]


def test_lengths_and_ranges_that_disagree(proxy: Proxy) -> None:
    """HTTP libraries accept these; only Content-Range or the request reveals them."""
    play(proxy, kind="short", at_bytes=20_000)
    assert fetch(proxy.url, **RANGE)[2] == WANTED[:20_000]
    assert fetch(proxy.url)[2] == CONTENT  # nothing but its length tells how long a file is

    play(proxy, kind="overlong")
    status, fields, body = fetch(proxy.url, **RANGE)
    assert (status, fields["Content-Range"]) == (206, f"bytes 1000-50999/{len(CONTENT)}")
    assert body[: len(WANTED)] == WANTED
    assert len(body) > len(WANTED)

    play(proxy, kind="wrong_range")
    status, fields, body = fetch(proxy.url, **RANGE)
    assert fields["Content-Range"] == f"bytes 1016-51015/{len(CONTENT)}"
    assert body == WANTED

    play(proxy, kind="ignore_range")
    status, fields, body = fetch(proxy.url, **RANGE)
    assert (status, body) == (200, CONTENT)
    assert proxy.counts()["faults"] == dict.fromkeys(
        ["short", "overlong", "wrong_range", "ignore_range"], 1
    )


def test_a_corrupted_byte_is_one_byte(proxy: Proxy) -> None:
    """Length and headers are the same, but one byte differs."""
    play(proxy, kind="corrupt", at_bytes=123)
    status, _, body = fetch(proxy.url, **RANGE)

    assert status == 206
    assert [at for at, (a, b) in enumerate(zip(body, WANTED, strict=True)) if a != b] == [123]


def test_an_etag_changes_from_a_moment_on(proxy: Proxy) -> None:
    """After some requests, or when the script changes, the ETag differs."""
    play(proxy, kind="etag", skip=2)
    seen = [fetch(proxy.url)[1]["ETag"] for _ in range(4)]

    assert seen[0] == seen[1] != seen[2] == seen[3]
    proxy.play(Script())
    assert fetch(proxy.url)[1]["ETag"] == seen[0]


def test_faults_meet_only_requests_they_can_spoil(proxy: Proxy) -> None:
    """A fault that cannot apply, such as a cut body of HEAD, is not used up."""
    address = urlsplit(proxy.url)
    for kind, method, headers in [("truncate", "HEAD", {}), ("short", "GET", {})]:
        play(proxy, kind=kind, times=1)
        connection = http.client.HTTPConnection(str(address.hostname), address.port)
        connection.request(method, "/file.bin", headers=headers)
        assert connection.getresponse().status == 200
        connection.close()
        with contextlib.suppress(http.client.IncompleteRead):
            fetch(proxy.url, **RANGE)

    assert proxy.counts()["faults"] == {"truncate": 1, "short": 1}


def test_faults_meet_paths(proxy: Proxy) -> None:
    """Only requests with a matching path fail."""
    play(proxy, kind="status", path=r"\.mp4$")

    assert fetch(proxy.url)[0] == 200


def test_latency_and_bandwidth_hold_for_all_connections_together(proxy: Proxy) -> None:
    """Four concurrent transfers share the bandwidth, and each waits for its round trips."""
    proxy.play(Script(latency_s=0.1, bytes_per_s=4 * len(CONTENT)))
    began = time.monotonic()
    with ThreadPoolExecutor(4) as pool:
        bodies = [answer[2] for answer in pool.map(fetch, [proxy.url] * 4)]
    seconds = time.monotonic() - began

    assert bodies == [CONTENT] * 4
    # The least they can take: a second for the bytes, and round trips to connect and to ask.
    assert seconds >= 1 + 2 * 0.1


def test_requests_beyond_a_limit_are_refused(proxy: Proxy) -> None:
    """The proxy answers 429 with Retry-After, and counts it."""
    proxy.play(Script(requests_per_s=0.001))
    answers = [fetch(proxy.url) for _ in range(4)]

    assert [answer[0] for answer in answers] == [200, 429, 429, 429]
    assert answers[1][1]["Retry-After"] == "1"
    assert proxy.counts()["faults"] == {"limit": 3}
    assert proxy.counts()["answered"] == 1


def test_a_limit_refills_at_its_rate() -> None:
    """A burst of a second's requests passes, then ten a second."""
    allowance = RequestLimit(10)
    burst = [allowance.take(100.0) for _ in range(12)]
    later = [allowance.take(100.0 + tick / 100) for tick in range(1, 201)]

    assert burst == [True] * 10 + [False] * 2
    assert 19 <= sum(later) <= 20


def test_chance_follows_from_the_seed_alone(server: str) -> None:
    """Two proxies treat equal requests equally, in any order; another seed differs."""
    ranges = [f"bytes={start}-{start + 99}" for start in range(0, 20_000, 100)]

    def suffered(seed: int, asked: list[str]) -> dict[Any, str]:
        with start_proxy(server, Script(mixed_faults(0.3), seed=seed)) as proxy:
            for wanted in asked:
                with contextlib.suppress(http.client.HTTPException, OSError):
                    fetch(proxy.url, Range=wanted)
            return {exchange.start: exchange.fault for exchange in proxy.journal()}

    first = suffered(1, ranges)
    assert suffered(1, ranges[::-1]) == first
    assert suffered(2, ranges) != first
    assert 30 < sum(map(bool, first.values())) < 90
    assert len(set(first.values())) > 5


def test_shares_are_of_all_requests() -> None:
    """A mix of 10 % hits 10 %, each kind equally often; a repeated request draws again."""
    director = Director(Script(mixed_faults(0.1), seed=3))
    drawn = [director.select("GET", f"/{n % 1000}", "bytes=0-9")[0] for n in range(20_000)]
    hit = [fault for fault in drawn if fault is not None]

    assert 0.09 < len(hit) / len(drawn) < 0.11
    for fault in mixed_faults(0.1):
        assert 0.7 < 7 * hit.count(fault) / len(hit) < 1.3


def test_unknown_kinds_are_refused() -> None:
    """A misspelt script is an error."""
    with pytest.raises(ValueError, match=r"want a kind of fault among status, reset.*'rest'"):
        Fault("rest")
    assert Script.from_dict(Script((Fault("reset"),)).to_dict()).faults == (Fault("reset"),)
    assert {fault.kind for fault in mixed_faults(0.1)} <= set(KINDS)


def test_the_file_server_keeps_to_its_folder(server: str, tmp_path: Path) -> None:
    """Paths outside are 404; suffix ranges work; If-Match fails for a changed file."""
    address = urlsplit(server)
    connection = http.client.HTTPConnection(str(address.hostname), address.port)
    seen = []
    for path, headers in [
        ("/../" + Path(__file__).name, {}),
        ("/file.bin", {"Range": "bytes=-5"}),
        ("/file.bin", {"If-Match": '"other"'}),
        ("/folder/", {}),
    ]:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        seen.append((response.status, response.read()))
    connection.close()

    assert [status for status, _ in seen] == [404, 206, 412, 200]
    assert seen[1][1] == CONTENT[-5:]
