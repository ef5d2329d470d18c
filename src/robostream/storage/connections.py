# SPDX-License-Identifier: Apache-2.0
"""HTTP connections that stay open, through proxies where the environment says so."""

from __future__ import annotations

import base64
import http.client
import io
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import SplitResult, quote, unquote
from urllib.request import getproxies, proxy_bypass

from robostream import config
from robostream.errors import StorageError, UnreachableError
from robostream.storage.location import redact, split_url
from robostream.storage.retry import TransientError

# Connections to one server that wait for the next request.
_IDLE = 16
# Messages beside redirects and errors are read whole, so that the connection can be used again.
_MESSAGE_BYTES = 1 << 16
# Read in one go: memory is taken for bytes that came, not for those that were announced.
_PIECE_BYTES = 256 << 20
_NUMBER = re.compile("[0-9]{1,18}")
# What an address may hold as it is; other letters, spaces too, are escaped.
_IN_ADDRESSES = "%/:?#[]@!$&'()*+,;=~"
_HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
# Headers whose values are no secrets; any other may be, whatever it is called.
_PUBLIC_HEADERS = frozenset(("range", "accept-encoding", "host", "x-amz-date"))
_SHORTEST_SECRET = 6
# Where the Hub says what is wrong.
MESSAGE_HEADER = "x-error-message"
# A server closes a connection that was idle for long; that is found out by using it.
_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered.

    Attributes:
        status: The HTTP status.
        headers: By name in small letters.
        content: The body, or as much of it as was wanted.
        is_whole: Whether that is all of the body.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    is_whole: bool


class Connections:
    """Connections of this process. Thread-safe; safe to carry over a fork."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def ask(
        self, url: str, headers: Mapping[str, str], *, most_bytes: int, method: str = "GET"
    ) -> Answer:
        """Return the answer to a request, with at most `most_bytes` of its body; or raise.

        Redirects are returned, not followed. What may pass is raised as `Passing`.
        """
        address = split_url(url)
        # Who we are is in the headers: a user in the address is of no use to server and proxy.
        address = address._replace(netloc=address.netloc.rpartition("@")[2])
        if address.scheme not in ("http", "https"):
            raise UnreachableError(f"{redact(url)}: want an address of http:// or https://.")
        try:
            return self._ask(address, method, checked_headers(headers, redact(url)), most_bytes)
        except StorageError:
            raise
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"{redact(url)}: the server's certificate is not trusted ({error.verify_message}). "
                "If you trust it, add its certificate to a file and name that in the environment "
                f"variable {config.certificates()[0]}."
            ) from None
        except Slow as error:
            raise TransientError(str(error), is_stall=True) from None
        except TimeoutError:
            raise TransientError(
                f"silent for {config.REMOTE_TIMEOUT_S:.0f} s", is_stall=True
            ) from None
        except http.client.InvalidURL:
            raise UnreachableError(f"{redact(url)}: this is no address of a server.") from None
        except http.client.IncompleteRead as error:
            raise TransientError(f"the answer ended after {len(error.partial)} bytes") from None
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{type(error).__name__}: {error}") from None

    def _ask(
        self, address: SplitResult, method: str, headers: Mapping[str, str], most_bytes: int
    ) -> Answer:
        connection = self._take(address)
        is_fresh = connection is None
        connection = connection or _connect(address)
        is_reusable = False
        try:
            try:
                connection.request(method, *_target(address, headers, connection))
                response = connection.getresponse()
            except _CLOSED:
                if is_fresh:
                    raise
                # Those that wait beside it waited as long.
                self._forget(address)
                raise TransientError(
                    "the server closed an idle connection", is_stale=True
                ) from None
            is_content = response.status in (200, 206)
            content = _read(response, most_bytes if is_content else _MESSAGE_BYTES)
            # One byte more would be more than was wanted; none is the end.
            is_whole = response.isclosed() or not response.read(1)
            known = {name.lower(): value for name, value in response.getheaders()}
            if method != "HEAD":
                _check_length(known, len(content), is_whole=is_whole)
            if not is_content:
                content = _without_secrets(content, headers)
                message = known.get(MESSAGE_HEADER, "").encode("latin-1")
                known[MESSAGE_HEADER] = _without_secrets(message, headers).decode("latin-1")
            is_reusable = is_whole and response.isclosed() and not response.will_close
            return Answer(response.status, known, content, is_whole)
        finally:
            if is_reusable:
                self._give_back(address, connection)
            else:
                connection.close()

    def _take(self, address: SplitResult) -> http.client.HTTPConnection | None:
        if self._process != os.getpid():
            # A fork: the parent goes on with these connections, and may hold the lock.
            self.__init__()  # type: ignore[misc]
        with self._lock:
            idle = self._idle.get((address.scheme, address.netloc))
            return idle.pop() if idle else None

    def _forget(self, address: SplitResult) -> None:
        with self._lock:
            for connection in self._idle.pop((address.scheme, address.netloc), []):
                connection.close()

    def _give_back(self, address: SplitResult, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            idle = self._idle.setdefault((address.scheme, address.netloc), [])
            if len(idle) < _IDLE:
                idle.append(connection)
                return
        connection.close()


class Slow(Exception):
    """An answer comes, but too slowly to wait for."""


class _Metered(io.RawIOBase):
    """What comes from a server, as long as it does not trickle.

    Silence ends in the socket's timeout, but any byte begins that anew.
    """

    def __init__(self, connected: socket.socket, raw: io.RawIOBase) -> None:
        self._recv_into = connected.recv_into  # as `raw` does, with one call less
        self._raw = raw
        self._waited_s = 0.0
        self._received = 0
        self._slow_s = config.remote_slow_s()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        began = time.monotonic()
        count = self._recv_into(buffer)
        self._waited_s += time.monotonic() - began
        self._received += count
        if self._waited_s >= self._slow_s > 0:
            if self._received < config.REMOTE_LEAST_BYTES_PER_S * self._waited_s:
                raise Slow(
                    f"only {self._received} bytes came in {self._waited_s:.0f} s; if the network "
                    "is that slow, raise ROBOSTREAM_REMOTE_IO_SLOW_S"
                )
            self._waited_s, self._received = 0.0, 0
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Response(http.client.HTTPResponse):
    """A response, its head and its body, that does not trickle."""

    def __init__(self, connected: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(connected, *args, **kwargs)
        self.fp = io.BufferedReader(_Metered(connected, self.fp.detach()))


def _read(response: http.client.HTTPResponse, most_bytes: int) -> bytes:
    pieces = []
    while most_bytes > 0:
        piece = response.read(min(most_bytes, _PIECE_BYTES))
        if not piece:
            break
        pieces.append(piece)
        most_bytes -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def parse_size(text: str) -> int | None:
    """Return the number of bytes that a header names; None if it is no plausible number. Pure."""
    return int(text) if _NUMBER.fullmatch(text) else None


def server_of(url: str) -> str:
    """Return the host and port that an address names. Pure."""
    return split_url(url).netloc.rpartition("@")[2]


def origin(url: str) -> tuple[str, str, int | None]:
    """Return whom an address belongs to: credentials are for one scheme, host and port. Pure."""
    parts = split_url(url)
    usual = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def checked_headers(headers: Mapping[str, str], where: str) -> dict[str, str]:
    """Return headers that can be sent, or raise an error that does not show their values."""
    stripped = {name: value.strip() for name, value in headers.items()}
    for name, value in stripped.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise UnreachableError(
                f"{where}: the value of the header {name!r} has a line break or another "
                "character that no header may have. Check the token, password or key it is made of."
            )
    return stripped


def _without_secrets(content: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a server's message without what was sent to it: some servers repeat the request."""
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= _SHORTEST_SECRET:
                    content = content.replace(secret.encode("latin-1"), b"...")
    return content


def _target(
    address: SplitResult, headers: Mapping[str, str], connection: http.client.HTTPConnection
) -> tuple[str, None, dict[str, str]]:
    """Return what the first line of a request names, no body, and the headers.

    If a proxy is asked, the line has all of the address, and the headers who we are to the proxy.
    """
    escaped = address._replace(
        path=quote(address.path, safe=_IN_ADDRESSES),
        query=quote(address.query, safe=_IN_ADDRESSES),
        fragment="",
    )
    proxy = connection.proxy if isinstance(connection, _PlainConnection) else None
    if proxy is not None:
        return escaped.geturl(), None, {**headers, **_proxy_headers(proxy)}
    return escaped._replace(scheme="", netloc="").geturl() or "/", None, dict(headers)


def _check_length(headers: Mapping[str, str], received: int, *, is_whole: bool) -> None:
    length = parse_size(headers.get("content-length", ""))
    if is_whole and length is not None and received < length:
        raise TransientError(f"the answer ended after {received} of {length} bytes")


class _PlainConnection(http.client.HTTPConnection):
    """A connection without TLS; to the proxy, if there is one."""

    response_class = _Response
    proxy: SplitResult | None = None


class _TlsConnection(http.client.HTTPSConnection):
    response_class = _Response


def _connect(address: SplitResult) -> http.client.HTTPConnection:
    proxy = _proxy_of(address)
    host, port = address.hostname or "", address.port
    if proxy is not None:
        host, port = proxy.hostname or "", proxy.port
    if address.scheme != "https":
        plain = _PlainConnection(host, port, timeout=config.REMOTE_TIMEOUT_S)
        plain.proxy = proxy
        return plain
    connection = _TlsConnection(host, port, timeout=config.REMOTE_TIMEOUT_S, context=_trust())
    if proxy is not None:
        connection.set_tunnel(address.hostname or "", address.port or 443, _proxy_headers(proxy))
    return connection


def _proxy_of(address: SplitResult) -> SplitResult | None:
    proxy = getproxies().get(address.scheme)
    if not proxy or proxy_bypass(address.hostname or ""):
        return None
    return split_url(proxy if "://" in proxy else f"http://{proxy}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    variable, file = config.certificates()
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise UnreachableError(
            f"{file}: this file, which {variable} names, holds no certificates that can be read "
            f"({error.strerror or error}). Correct the variable or unset it."
        ) from None
