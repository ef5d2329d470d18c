# SPDX-License-Identifier: Apache-2.0
"""HTTP connections that stay open, through proxies where the environment says so."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from robostream import config
from robostream.errors import UnreachableError
from robostream.storage.files.names import redact
from robostream.storage.remote.retry import Passing

# Connections to one server that wait for the next request.
_IDLE = 16
# Messages beside redirects and errors are read whole, so that the connection can be used again.
_MESSAGE_BYTES = 1 << 16
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
        address = urlsplit(url)
        if address.scheme not in ("http", "https"):
            raise UnreachableError(f"{redact(url)}: want an address of http:// or https://.")
        try:
            return self._ask(address, method, headers, most_bytes)
        except ssl.SSLCertVerificationError as error:
            raise UnreachableError(
                f"{redact(url)}: the server's certificate is not trusted ({error.verify_message}). "
                "If that is as it should be, name a file of certificates in SSL_CERT_FILE."
            ) from None
        except TimeoutError:
            raise Passing(f"silent for {config.REMOTE_TIMEOUT_S:.0f} s", is_stall=True) from None
        except http.client.InvalidURL as error:
            raise UnreachableError(f"{redact(url)}: {error}") from None
        except http.client.IncompleteRead as error:
            raise Passing(f"the answer ended after {len(error.partial)} bytes") from None
        except (OSError, http.client.HTTPException) as error:
            raise Passing(f"{type(error).__name__}: {error}") from None

    def _ask(
        self, address: SplitResult, method: str, headers: Mapping[str, str], most_bytes: int
    ) -> Answer:
        connection = self._take(address)
        is_fresh = connection is None
        connection = connection or _connect(address)
        is_reusable = False
        try:
            try:
                connection.request(method, _target(address), headers=dict(headers))
                response = connection.getresponse()
            except _CLOSED:
                if is_fresh:
                    raise
                # Those that wait beside it waited as long.
                self._forget(address)
                raise Passing("the server closed an idle connection", is_stale=True) from None
            is_content = response.status in (200, 206)
            content = response.read(most_bytes if is_content else max(most_bytes, _MESSAGE_BYTES))
            # One byte more would be more than was wanted; none is the end.
            is_whole = response.isclosed() or not response.read(1)
            known = {name.lower(): value for name, value in response.getheaders()}
            if method != "HEAD":
                _check_length(known, len(content), is_whole=is_whole)
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


def _target(address: SplitResult) -> str:
    """Return what the first line of a request names: all of the address if a proxy is asked."""
    if address.scheme == "http" and _proxy_of(address) is not None:
        return address.geturl()
    return address._replace(scheme="", netloc="", fragment="").geturl() or "/"


def _check_length(headers: Mapping[str, str], received: int, *, is_whole: bool) -> None:
    length = headers.get("content-length", "")
    if is_whole and length.isdigit() and received < int(length):
        raise Passing(f"the answer ended after {received} of {length} bytes")


def _connect(address: SplitResult) -> http.client.HTTPConnection:
    proxy = _proxy_of(address)
    host, port = address.hostname or "", address.port
    if proxy is not None:
        host, port = proxy.hostname or "", proxy.port
    if address.scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=config.REMOTE_TIMEOUT_S)
    connection = http.client.HTTPSConnection(
        host, port, timeout=config.REMOTE_TIMEOUT_S, context=_trust()
    )
    if proxy is not None:
        connection.set_tunnel(address.hostname or "", address.port or 443, _proxy_headers(proxy))
    return connection


def _proxy_of(address: SplitResult) -> SplitResult | None:
    proxy = getproxies().get(address.scheme)
    if not proxy or proxy_bypass(address.hostname or ""):
        return None
    return urlsplit(proxy if "://" in proxy else f"http://{proxy}")


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


@lru_cache(maxsize=1)
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=config.certificates())
