# SPDX-License-Identifier: Apache-2.0
"""The process that serves a folder over HTTP with byte ranges, as a plain web server does.

python -m robostream.testing.file_server FOLDER

It prints its address and exits when standard input closes.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


class RangeHandler(SimpleHTTPRequestHandler):
    """Serves files and byte ranges of them, and folders as lists of links."""

    protocol_version = "HTTP/1.1"
    # Head and body are separate writes; with Nagle's algorithm each body would wait for an ACK.
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        """Send a file, a range of it, or the list of a folder."""
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers only."""
        self._respond(with_body=False)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def _respond(self, *, with_body: bool) -> None:
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            # The library's own response: a list of links, or 404.
            super().do_GET() if with_body else super().do_HEAD()
            return
        size, etag = path.stat().st_size, f'"{path.stat().st_mtime_ns:x}-{path.stat().st_size:x}"'
        if self.headers.get("If-Match", etag) not in (etag, "*"):
            self._send(HTTPStatus.PRECONDITION_FAILED, 0, {})
            return
        wanted = _requested(self.headers.get("Range", ""), size)
        fields = {"ETag": etag, "Accept-Ranges": "bytes"}
        if wanted is not None and not wanted:
            fields |= {"Content-Range": f"bytes */{size}"}
            self._send(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, 0, fields)
            return
        if wanted is None:
            status, wanted = HTTPStatus.OK, range(size)
        else:
            status = HTTPStatus.PARTIAL_CONTENT
            fields |= {"Content-Range": f"bytes {wanted.start}-{wanted.stop - 1}/{size}"}
        self._send(status, len(wanted), fields)
        if with_body:
            with path.open("rb") as file:
                file.seek(wanted.start)
                self.wfile.write(file.read(len(wanted)))

    def _send(self, status: HTTPStatus, length: int, fields: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(length)}.items():
            self.send_header(name, value)
        self.end_headers()


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
    """Serve until standard input closes."""
    handler = functools.partial(RangeHandler, directory=folder)
    with _FileServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
