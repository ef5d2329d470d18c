# SPDX-License-Identifier: Apache-2.0
"""Servers that lead credentials astray, name impossible numbers, or never come to an end."""

from __future__ import annotations

import base64
import resource
import select
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from robostream.errors import AccessDeniedError, StorageError, UnreachableError
from robostream.storage import TRAFFIC, FileOpener, as_location
from robostream.storage import connections as connections
from tests.servers.ftp import serve_ftp
from tests.servers.scripted import CERTIFICATE, Handler, Scripted, serve_scripted

CONTENT = bytes(range(256))
SECRET = "s3cr3t-token"
CREDENTIALS = {"headers": {"Authorization": f"Bearer {SECRET}", "X-Key": SECRET}}


@pytest.fixture(autouse=True)
def trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """The servers' certificate is trusted; nothing is asked for a second time, unless a test does.

    Contexts are made once per process, so those of other tests are forgotten.
    """
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(CERTIFICATE))
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "0")
    connections._tls_context.cache_clear()


def read(url: str, **options: object) -> bytes:
    return FileOpener(as_location(url, options)).open("file.bin").read(0, 256)


def file_or(redirect: Callable[[Handler], str | None]) -> Callable[[Handler], None]:
    """A reply that redirects, or gives all of the file."""

    def reply(handler: Handler) -> None:
        target = redirect(handler)
        if target is None:
            handler.reply(206, CONTENT, Content_Range="bytes 0-255/256", ETag='"1"')
        else:
            handler.reply(302, Location=target)

    return reply


def carried(server: Scripted) -> list[tuple[bool, str, bool]]:
    """Of each request: TLS, path, whether all or nothing of the credentials came along."""
    assert all(("authorization" in a.headers) == ("x-key" in a.headers) for a in server.requests)
    return [(a.is_tls, a.path, "x-key" in a.headers) for a in server.requests]


def test_a_redirect_from_https_to_http_is_refused() -> None:
    """No request is sent in plain text, not even to the same host and port."""
    with serve_scripted(file_or(lambda h: f"{there.url}/plain?sig={SECRET}")) as there:
        with pytest.raises(UnreachableError, match="redirects from https to http://127") as error:
            read(there.tls_url, **CREDENTIALS)

        assert carried(there) == [(True, "/file.bin", True)]
        assert SECRET not in str(error.value)


def test_credentials_follow_to_the_same_scheme_host_and_port_only() -> None:
    """Another scheme, port or name receives the request without them."""
    first = "/file.bin"

    def to(target: str) -> Callable[[Handler], None]:
        return file_or(lambda h: target if h.path == first else None)

    with serve_scripted(file_or(lambda _: None)) as other:
        for scheme, target, is_sent in [
            ("http", "/moved", True),
            ("http", f"{other.url}/moved", False),
        ]:
            with serve_scripted(to(target)) as server:
                assert read(server.url, **CREDENTIALS) == CONTENT
                assert carried(server)[0] == (scheme == "https", first, True)
                assert carried(other if target[0] != "/" else server)[-1][1:] == ("/moved", is_sent)
    with serve_scripted(
        file_or(lambda h: f"{there.tls_url}/moved" if h.path == first else None)
    ) as there:
        assert read(there.url, **CREDENTIALS) == CONTENT
        assert carried(there) == [(False, first, True), (True, "/moved", False)]


def test_a_listing_that_goes_on_elsewhere_does_not_take_the_token_there(tmp_path: Path) -> None:
    """The Hub names the next page of a listing, which could be on any server."""
    page = b'[{"type": "file", "path": "videos/a.mp4", "size": 3}]'
    with serve_scripted(lambda h: h.reply(200, b"[]")) as other:
        link = f'<{other.url}/next>; rel="next"'
        with serve_scripted(lambda h: h.reply(200, page, Link=link)) as hub:
            place = as_location("hf://buckets/a/b", {"endpoint": hub.url, "token": SECRET})
            with pytest.raises(StorageError, match="another server: the token is not sent there"):
                FileOpener(place).list_files("videos", ".mp4")

    assert hub.requests[0].headers["authorization"] == f"Bearer {SECRET}"
    assert other.requests == []


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (503, {"Retry_After": "nan"}),
        (206, {"Content_Range": "bytes 0-255/" + "9" * 5000}),
        (206, {"Content_Range": f"bytes {'9' * 5000}-255/256"}),
        (416, {"Content_Range": "bytes */" + "9" * 5000}),
        (302, {"Location": "http://127.0.0.1:99999/file.bin"}),
        (302, {"Location": "http://[::1/file.bin"}),
    ],
)
def test_impossible_numbers_are_errors_of_ours(status: int, headers: dict[str, str]) -> None:
    """Whatever a server writes into its headers, the error names the file and stays short."""

    def reply(handler: Handler) -> None:
        handler.close_connection = True
        handler.reply(status, CONTENT, Connection="close", **headers)

    with serve_scripted(reply) as server:
        source = FileOpener(as_location(server.url)).open("file.bin")
        for ask in (source.size, lambda: source.read(0, 256)):
            with pytest.raises(StorageError) as error:
                ask()
            assert str(error.value).startswith(("http://127.0.0.1", "http://[::1"))
            assert len(str(error.value)) < 800


@pytest.mark.parametrize("length", ["\u00b2\u00b3", "9" * 5000, "-1"])
def test_a_length_that_is_no_number_is_no_length(length: str) -> None:
    """Without a length, the file ends with the connection; a part of it has no known size."""

    def reply(handler: Handler) -> None:
        handler.close_connection = True
        handler.reply(200, CONTENT, Connection="close", Content_Length=length)

    with serve_scripted(reply) as server:
        assert read(server.url) == CONTENT
        with pytest.raises(StorageError, match="does not say how large the file is"):
            FileOpener(as_location(server.url)).open("file.bin").size()


def test_a_wait_that_is_no_number_is_waited_out_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure with an invalid Retry-After is retried after the usual delay."""
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "2")

    def reply(handler: Handler) -> None:
        if len(server.requests) == 1:
            handler.reply(500, Retry_After="nan")
        else:
            handler.reply(206, CONTENT, Content_Range="bytes 0-255/256")

    with serve_scripted(reply) as server:
        assert read(server.url) == CONTENT


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999/a", "s3://buck/a", "hf://buckets/a/b"])
def test_a_port_that_no_server_has_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an address, or in that of an endpoint."""
    options = {
        "http": {},
        "s3": {"endpoint_url": "http://127.0.0.1:99999", "key": "k", "secret": "s"},
        "hf": {"endpoint": "http://127.0.0.1:99999"},
    }
    with pytest.raises(StorageError, match="port of at most 65535"):
        read(url, **options[url.split(":")[0]])


def test_a_trickle_is_a_stall_and_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Single bytes restart the timeout, so a response that is too slow is abandoned.

    The server trickles for ever: without a limit on the rate this test would not end.
    """
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "3")
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_SLOW_S", "0.4")

    def reply(handler: Handler) -> None:
        if len(server.requests) > 2:
            handler.reply(206, CONTENT, Content_Range="bytes 0-255/256")
            return
        is_head = len(server.requests) == 2
        start = b"HTTP/1.1 206 Partial Content\r\n"
        handler.wfile.write(start if is_head else start + b"Content-Length: 100000\r\n\r\n")
        while True:  # until the client hangs up
            handler.wfile.write(b"X")
            select.select([], [], [], 0.05)

    with serve_scripted(reply) as server:
        opener = FileOpener(as_location(server.url))

        assert opener.open("file.bin").read(0, 256) == CONTENT
        counts = dict(zip(TRAFFIC, opener.traffic.take(), strict=True))
        assert (counts["stalls"], counts["retries"]) == (2, 2)


def test_a_proxy_is_told_who_we_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the user and password of its address, also where no tunnel is needed."""
    with serve_scripted(file_or(lambda _: None)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://ann:p%40w@127.0.0.1:{proxy.port}")
        monkeypatch.setenv("no_proxy", "")
        assert read("http://robots.invalid/data") == CONTENT

    wanted = "Basic " + base64.b64encode(b"ann:p@w").decode()
    assert proxy.requests[0].path == "http://robots.invalid/data/file.bin"
    assert proxy.requests[0].headers["proxy-authorization"] == wanted


@pytest.mark.parametrize("variable", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_certificate_error_names_the_variable_that_decides(
    variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the variable in use, because some override others."""
    found = ssl.get_default_verify_paths().cafile
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    if variable != "SSL_CERT_FILE":
        monkeypatch.setenv(variable, found or "")
        monkeypatch.setenv("SSL_CERT_FILE", str(CERTIFICATE))
    connections._tls_context.cache_clear()
    with serve_scripted(file_or(lambda _: None)) as server:
        with pytest.raises(UnreachableError, match=rf"environment variable {variable}\."):
            read(server.tls_url)
        monkeypatch.setenv(variable, str(CERTIFICATE))
        connections._tls_context.cache_clear()
        assert read(server.tls_url) == CONTENT
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/none.pem")
        connections._tls_context.cache_clear()
        with pytest.raises(UnreachableError, match=r"/none\.pem: .*REQUESTS_CA_BUNDLE"):
            FileOpener(as_location(f"https://localhost:{server.port}")).open("file.bin").size()


@pytest.mark.parametrize(
    ("content", "headers", "words"),
    [
        (b"<html><body><h1>Blocked</h1> by policy 7\n</body></html>", {}, "'Blocked by policy 7'"),
        (b"<E><Code>AccessDenied</Code><Message>Expired</Message><Id>x</Id></E>", {}, "Expired'"),
        (b"", {"X_Error_Message": "repo is gated"}, "'repo is gated'"),
        (f"no: Bearer {SECRET} http://a/b?sig={SECRET}".encode(), {}, "'no: ... http://a/b"),
        (b"long " * 10_000, {}, "long long"),
        (b"", {}, "(HTTP 403)"),
    ],
)
def test_a_403_shows_the_reason(content: bytes, headers: dict[str, str], words: str) -> None:
    """The error quotes the server, without markup and secrets, and not a whole page."""
    with (
        serve_scripted(lambda h: h.reply(403, content, **headers)) as server,
        pytest.raises(AccessDeniedError) as error,
    ):
        read(server.url, **CREDENTIALS)

    assert words in str(error.value)
    assert SECRET not in str(error.value)
    assert len(str(error.value)) < 600


def test_a_busy_ftp_server_is_retried_and_then_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4xx replies are retried; a wrong password is an error at once."""
    (tmp_path / "file.bin").write_bytes(CONTENT)
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "2")
    with serve_ftp(tmp_path, "ann", "pw", busy=2) as url:
        assert read(url.replace("://", "://ann:pw@")) == CONTENT
    with serve_ftp(tmp_path, "ann", "pw", busy=99) as url:
        address = url.replace("://", "://ann:pw@")
        with pytest.raises(UnreachableError, match=r"gave up after 3 attempts.*421"):
            read(address)
    with serve_ftp(tmp_path, "ann", "pw") as url:
        address = url.replace("://", "://ann:no@")
        with pytest.raises(AccessDeniedError, match="530"):
            read(address)


SIZE_PROGRAM = """
import sys
from pathlib import Path
from robostream.decode import VideoFiles
from robostream.storage import CacheSettings, FileOpener, as_location
opener = FileOpener(as_location(sys.argv[1], {}, CacheSettings(Path(sys.argv[2]), "1GB")))
VideoFiles(opener.open, max_files=1).get("file.mp4")
"""


@pytest.mark.parametrize("size", [20 * 10**12, 10**17])
def test_a_claimed_size_takes_no_memory(size: int, tmp_path: Path) -> None:
    """A video that claims 20 TB is an error at once, which names the setting."""

    def reply(handler: Handler) -> None:
        handler.reply(200, ETag='"1"', Content_Length=str(size))

    limit = 4 * 1024**3
    with serve_scripted(reply) as server:
        program = subprocess.run(
            [sys.executable, "-c", SIZE_PROGRAM, server.url, str(tmp_path / "cache")],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
            capture_output=True,
            text=True,
            check=False,
        )

    assert program.returncode == 1
    assert f"StorageError: {server.url}/file.mp4: the server says that" in program.stderr
    assert "config.MOST_REMOTE_FILE_BYTES" in program.stderr


def test_a_server_that_closes_every_idle_connection_ends_in_an_error() -> None:
    """Retries on fresh connections are bounded."""

    def reply(handler: Handler) -> None:
        handler.close_connection = True
        handler.reply(200 if handler.command == "HEAD" else 206, Content_Length="x")

    with serve_scripted(reply) as server:
        source = FileOpener(as_location(server.url)).open("file.bin")
        with pytest.raises(StorageError):
            source.size()
