# SPDX-License-Identifier: Apache-2.0
"""An HTTP server with scripted responses, with and without TLS on one port."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

# A certificate for 127.0.0.1 and its key, for tests alone.
CERTIFICATE = Path(__file__).with_name("loopback.pem")
_TLS_HANDSHAKE = b"\x16"


@dataclass(frozen=True, slots=True)
class Asked:
    """One request: whether it used TLS, its method, target and headers."""

    is_tls: bool
    method: str
    path: str
    headers: dict[str, str]


@dataclass(slots=True)
class Scripted:
    """A running server.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        requests: What it was asked so far.
    """

    port: int
    requests: list[Asked] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Its address without TLS."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        """Its address with TLS, at the same port."""
        return f"https://127.0.0.1:{self.port}"


class Handler(BaseHTTPRequestHandler):
    """One connection; `reply` answers by the methods of http.server."""

    protocol_version = "HTTP/1.1"

    def reply(self, status: int, content: bytes = b"", **headers: str) -> None:
        """Send a response; header names are written with underscores."""
        self.send_response(status)
        for name, value in ({"Content_Length": str(len(content))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


Reply = Callable[[Handler], None]


@contextmanager
def serve_scripted(reply: Reply) -> Iterator[Scripted]:
    """Run a server whose requests are answered by `reply`, until the block ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)

    class Answering(Handler):
        def setup(self) -> None:
            if self.request.recv(1, socket.MSG_PEEK) == _TLS_HANDSHAKE:
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def finish(self) -> None:
            super().finish()
            self.request.close()

        def do_GET(self) -> None:
            is_tls = isinstance(self.request, ssl.SSLSocket)
            headers = {name.lower(): value for name, value in self.headers.items()}
            running.requests.append(Asked(is_tls, self.command, self.path, headers))
            reply(self)

        do_HEAD = do_GET

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients may disconnect."""

    with Server(("127.0.0.1", 0), Answering) as server:
        running = Scripted(server.server_address[1])
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield running
        finally:
            server.shutdown()
