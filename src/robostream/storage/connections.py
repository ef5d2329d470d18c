# SPDX-License-Identifier: Apache-2.0
"""Pooled HTTP connections, through proxies if the environment names any."""

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
from collections import defaultdict
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

_MAX_IDLE = 16  # connections to one server
# Bodies of redirects and errors are read completely, so that the connection can be reused.
_MAX_MESSAGE_BYTES = 1 << 16
# The most bytes of one read: memory grows with the bytes received, not with those announced.
_READ_BYTES = 256 << 20
_NUMBER = re.compile("[0-9]{1,18}")
# Characters of a URL that are not escaped.
_SAFE = "%/:?#[]@!$&'()*+,;=~"
_HEADER_VALUE = re.compile(r"[\x20-\x7e\xa0-\xff]*")
# Headers without secrets; any other may hold one.
_PUBLIC_HEADERS = frozenset(("range", "accept-encoding", "host", "x-amz-date"))
_MIN_SECRET_LENGTH = 6
# The Hub's header with the reason of an error.
MESSAGE_HEADER = "x-error-message"
# The first use of an idle connection finds out whether the server has closed it.
_CLOSED = (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response, with the body or its first bytes."""

    status: int
    headers: Mapping[str, str]  # by lower-case name
    content: bytes
    is_complete: bool  # whether `content` is the complete body


class Connections:
    """The connection pool of a process. Thread-safe; safe to use after a fork."""

    def __init__(self) -> None:
        self._reset()

    def request(
        self, url: str, headers: Mapping[str, str], *, max_bytes: int, method: str = "GET"
    ) -> HttpResponse:
        """Return the response with at most `max_bytes` of its body; or raise."""
        # Redirects are returned, not followed. What a retry may cure is a TransientError.
        address = split_url(url)
        # Credentials are in the headers: servers and proxies ignore a user in the URL.
        address = address._replace(netloc=address.netloc.rpartition("@")[2])
        if address.scheme not in ("http", "https"):
            raise UnreachableError(f"{redact(url)}: want an address of http:// or https://.")
        try:
            return self._send(address, method, check_headers(headers, redact(url)), max_bytes)
        except (StorageError, TransientError):
            raise
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"{redact(url)}: the server's certificate is not trusted ({error.verify_message}). "
                "If you trust it, add its certificate to a file and name that in the environment "
                f"variable {config.certificates()[0]}."
            ) from None
        except TimeoutError:
            raise TransientError(f"silent for {config.REMOTE_TIMEOUT_S:.0f} s", "stall") from None
        except http.client.InvalidURL:
            raise UnreachableError(f"{redact(url)}: malformed URL.") from None
        except http.client.IncompleteRead as error:
            raise TransientError(f"the response ended after {len(error.partial)} bytes") from None
        except (OSError, http.client.HTTPException) as error:
            raise TransientError(f"{type(error).__name__}: {error}") from None

    def close_idle(self, server: tuple[str, str] | None = None) -> None:
        """Close the idle connections to a server (scheme, host and port), or to all servers."""
        with self._lock:
            for known in list(self._idle) if server is None else [server]:
                for connection in self._idle.pop(known, []):
                    connection.close()

    def _send(
        self, address: SplitResult, method: str, headers: Mapping[str, str], max_bytes: int
    ) -> HttpResponse:
        server = address.scheme, address.netloc
        idle = self._take(server)
        connection = idle or _connect(address)
        is_reusable = False
        try:
            try:
                connection.request(method, *_target(address, headers, connection))
                response = connection.getresponse()
            except _CLOSED:
                if idle is None:
                    raise
                # The other idle connections are as old as this one.
                self.close_idle(server)
                raise TransientError("the server closed an idle connection", "stale") from None
            has_file = response.status in (200, 206)
            content = _read(response, max_bytes if has_file else _MAX_MESSAGE_BYTES)
            is_complete = response.isclosed() or not response.read(1)
            known = {name.lower(): value for name, value in response.getheaders()}
            length = parse_size(known.get("content-length", ""))
            if method != "HEAD" and is_complete and len(content) < (length or 0):
                raise TransientError(f"the response ended after {len(content)} of {length} bytes")
            if not has_file:
                content = _remove_secrets(content, headers)
                message = known.get(MESSAGE_HEADER, "").encode("latin-1")
                known[MESSAGE_HEADER] = _remove_secrets(message, headers).decode("latin-1")
            is_reusable = is_complete and response.isclosed() and not response.will_close
            return HttpResponse(response.status, known, content, is_complete)
        finally:
            if not is_reusable or not self._put_back(server, connection):
                connection.close()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._idle = defaultdict[tuple[str, str], list[http.client.HTTPConnection]](list)
        self._lock = threading.Lock()

    def _take(self, server: tuple[str, str]) -> http.client.HTTPConnection | None:
        if self._process != os.getpid():
            self._reset()  # after a fork, the parent uses these connections and may hold the lock
        with self._lock:
            return self._idle[server].pop() if self._idle[server] else None

    def _put_back(self, server: tuple[str, str], connection: http.client.HTTPConnection) -> bool:
        with self._lock:
            if has_space := len(self._idle[server]) < _MAX_IDLE:
                self._idle[server].append(connection)
        return has_space


@lru_cache(maxsize=1)
def connections() -> Connections:
    """Return the connection pool of this process."""
    return Connections()


class _MeteredSocket(io.RawIOBase):
    """Reads from a socket and raises TransientError if bytes only trickle in."""

    # The socket's timeout covers silence only: every byte restarts it.

    def __init__(self, connected: socket.socket, raw: io.RawIOBase) -> None:
        self._recv_into = connected.recv_into  # saves a call compared with `raw`
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
                raise TransientError(
                    f"only {self._received} bytes came in {self._waited_s:.0f} s; if the network "
                    "is that slow, raise ROBOSTREAM_REMOTE_IO_SLOW_S",
                    "stall",
                )
            self._waited_s, self._received = 0.0, 0
        return count

    def close(self) -> None:
        super().close()
        self._raw.close()


class _MeteredResponse(http.client.HTTPResponse):
    def __init__(self, connected: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(connected, *args, **kwargs)
        self.fp = io.BufferedReader(_MeteredSocket(connected, self.fp.detach()))


class _PlainConnection(http.client.HTTPConnection):
    """A connection without TLS, to the server or to its proxy."""

    response_class = _MeteredResponse

    def __init__(self, host: str, port: int | None, proxy: SplitResult | None) -> None:
        super().__init__(host, port, timeout=config.REMOTE_TIMEOUT_S)
        self.proxy = proxy


class _TlsConnection(http.client.HTTPSConnection):
    response_class = _MeteredResponse


def _connect(address: SplitResult) -> http.client.HTTPConnection:
    proxy = None
    named = getproxies().get(address.scheme)
    if named and not proxy_bypass(address.hostname or ""):
        proxy = split_url(named if "://" in named else f"http://{named}")
    server = proxy or address
    host, port = server.hostname or "", server.port
    if address.scheme != "https":
        return _PlainConnection(host, port, proxy)
    connection = _TlsConnection(host, port, timeout=config.REMOTE_TIMEOUT_S, context=_tls_context())
    if proxy is not None:
        connection.set_tunnel(address.hostname or "", address.port or 443, _proxy_headers(proxy))
    return connection


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    user, at, _ = proxy.netloc.rpartition("@")
    return {"Proxy-Authorization": basic_authorization(user)} if at else {}


def basic_authorization(user: str) -> str:
    """Return the header value for "name:password" as it stands in a URL. Pure."""
    name, _, password = user.partition(":")
    pair = f"{unquote(name)}:{unquote(password)}"
    return "Basic " + base64.b64encode(pair.encode()).decode()


@lru_cache(maxsize=1)
def _tls_context() -> ssl.SSLContext:
    variable, file = config.certificates()
    try:
        return ssl.create_default_context(cafile=file)
    except OSError as error:
        raise UnreachableError(
            f"{file}: this file, which {variable} names, holds no certificates that can be read "
            f"({error.strerror or error}). Correct the variable or unset it."
        ) from None


def _target(
    address: SplitResult, headers: Mapping[str, str], connection: http.client.HTTPConnection
) -> tuple[str, None, dict[str, str]]:
    """Return the request target, no body, and the headers; a proxy needs the complete URL."""
    path, query = quote(address.path, safe=_SAFE), quote(address.query, safe=_SAFE)
    escaped = address._replace(path=path, query=query, fragment="")
    proxy = connection.proxy if isinstance(connection, _PlainConnection) else None
    if proxy is not None:
        return escaped.geturl(), None, {**headers, **_proxy_headers(proxy)}
    return escaped._replace(scheme="", netloc="").geturl() or "/", None, dict(headers)


def _read(response: http.client.HTTPResponse, max_bytes: int) -> bytes:
    parts = []
    while max_bytes > 0 and (part := response.read(min(max_bytes, _READ_BYTES))):
        parts.append(part)
        max_bytes -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def parse_size(text: str) -> int | None:
    """Return the number of bytes in a header; None if it is not a plausible number. Pure."""
    return int(text) if _NUMBER.fullmatch(text) else None


def server_of(url: str) -> str:
    """Return the host and port of a URL. Pure."""
    return split_url(url).netloc.rpartition("@")[2]


def origin(url: str) -> tuple[str, str, int | None]:
    """Return the scheme, host and port of a URL; credentials are valid for one origin. Pure."""
    parts = split_url(url)
    default = {"http": 80, "https": 443}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or default


def check_headers(headers: Mapping[str, str], where: str) -> dict[str, str]:
    """Return headers that can be sent, or raise an error that does not show their values."""
    stripped = {name: value.strip() for name, value in headers.items()}
    for name, value in stripped.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise UnreachableError(
                f"{where}: the value of the header {name!r} has a line break or another "
                "character that headers cannot hold. Check the token, password or key in it."
            )
    return stripped


def _remove_secrets(content: bytes, headers: Mapping[str, str]) -> bytes:
    """Return a server's message without our credentials: some servers repeat the request."""
    for name, value in headers.items():
        if name.lower() not in _PUBLIC_HEADERS:
            for secret in (value, value.rpartition(" ")[2]):
                if len(secret) >= _MIN_SECRET_LENGTH:
                    content = content.replace(secret.encode("latin-1"), b"...")
    return content
