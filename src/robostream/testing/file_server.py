# SPDX-License-Identifier: Apache-2.0
"""The process that serves a folder over HTTP with byte ranges, as a plain web server does.

python -m robostream.testing.file_server FOLDER

It prints its address and exits when standard input closes.
"""

from __future__ import annotations

import functools
import io
import re
import sys
import threading
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import BinaryIO

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")


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
    """Serve until standard input closes."""
    handler = functools.partial(RangeHandler, directory=folder)
    with _FileServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
