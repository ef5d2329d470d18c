# SPDX-License-Identifier: Apache-2.0
"""Start the file server and the proxy in processes of their own, and control the proxy.

The file server serves a folder over HTTP with byte ranges, as a plain web server does.
"""

from __future__ import annotations

import functools
import io
import json
import re
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO

from robostream.testing.faults import Script
from robostream.testing.http_message import Exchange

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class Proxy:
    """A running proxy."""

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url  # paths are those of the server behind it
        self._process = process

    def play(self, script: Script) -> None:
        """Apply a script from now on."""
        self._command("script", script.to_dict())

    def journal(self, after: int = 0) -> list[Exchange]:
        """Return all completed exchanges after the first `after`."""
        return [Exchange(*line) for line in self._command("journal", after)]

    def counts(self) -> dict[str, Any]:
        """Return the numbers of requests, bytes and faults in the journal."""
        every = self.journal()
        return {
            "requests": len(every),
            "answered": sum(not exchange.fault and exchange.status < 400 for exchange in every),
            "sent_bytes": sum(exchange.sent_bytes for exchange in every),
            "faults": dict(Counter(exchange.fault for exchange in every if exchange.fault)),
        }

    def _command(self, name: str, argument: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, argument]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


@contextmanager
def start_proxy(upstream: str, script: Script | None = None) -> Iterator[Proxy]:
    """Run a proxy in front of the server at `upstream` and yield it."""
    with _running("proxy", upstream) as (url, process):
        proxy = Proxy(url, process)
        if script is not None:
            proxy.play(script)
        yield proxy


@contextmanager
def serve_files(folder: Path) -> Iterator[str]:
    """Serve the files of a folder and yield the address."""
    with _running("servers", str(folder)) as (url, _):
        yield url


@contextmanager
def _running(module: str, argument: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the `main` of a module in a process; yield the address that it prints."""
    code = f"import sys; from robostream.testing.{module} import main; main(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", code, argument],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            url = process.stdout.readline().strip()
            if not url:
                raise RuntimeError(f"{module} {argument} did not start; see its message above")
            yield url, process
        finally:
            process.stdin.close()
            process.wait(timeout=30)


class RangeHandler(SimpleHTTPRequestHandler):
    """Serves files and byte ranges of them, and folders as lists of links."""

    protocol_version = "HTTP/1.1"
    # Head and body are separate writes; with Nagle's algorithm each body would wait for an ACK.
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def send_head(self) -> io.BytesIO | BinaryIO | None:
        """Send the headers and return the body: of a file, or of a range; None if it is empty.

        The library calls this for GET and for HEAD, and sends the body of GET.
        """
        path = Path(self.translate_path(self.path))
        if not path.is_file():  # the library's own response: a list of links, or 404
            return super().send_head()
        size, etag = path.stat().st_size, f'"{path.stat().st_mtime_ns:x}-{path.stat().st_size:x}"'
        wanted, fields = _requested(self.headers.get("Range", ""), size), {}
        if self.headers.get("If-Match", etag) not in (etag, "*"):
            status, wanted = HTTPStatus.PRECONDITION_FAILED, range(0)
        else:
            status, fields = HTTPStatus.OK, {"ETag": etag, "Accept-Ranges": "bytes"}
            if wanted is None:
                wanted = range(size)
            elif wanted:
                status = HTTPStatus.PARTIAL_CONTENT
                fields["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
            else:
                status = HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE
                fields["Content-Range"] = f"bytes */{size}"
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(wanted))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "GET" or not wanted:
            return None
        with path.open("rb") as file:
            file.seek(wanted.start)
            return io.BytesIO(file.read(len(wanted)))


def _requested(header: str, size: int) -> range | None:
    """Return the bytes that a Range header requests, maybe none; None for the whole file. Pure."""
    match = _RANGE.fullmatch(header)
    if match is None or match[0] == "bytes=-":
        return None
    if not match[1]:
        return range(max(size - int(match[2]), 0), size)
    return range(int(match[1]), min(int(match[2]) + 1, size) if match[2] else size)


class _FileServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024

    def handle_error(self, request: object, client_address: object) -> None:
        """Log nothing when a client hangs up."""


def main(folder: str) -> None:
    """Print the address and serve until standard input closes."""
    handler = functools.partial(RangeHandler, directory=folder)
    with _FileServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdin.read()
        server.shutdown()
