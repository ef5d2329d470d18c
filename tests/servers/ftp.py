# SPDX-License-Identifier: Apache-2.0
"""A minimal FTP server on loopback, for Python's client and fsspec."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def serve_ftp(root: Path, user: str, password: str, *, busy: int = 0) -> Iterator[str]:
    """Serve a folder to one user and yield its address, without the user.

    Args:
        root: The folder.
        user: Who may read.
        password: The user's password.
        busy: How many connections are turned away first.
    """
    turned_away = iter(range(busy))

    class Session(_Session):
        folder, login = root, (user, password)

        def is_busy(self) -> bool:
            return next(turned_away, None) is not None

    with _Server(("127.0.0.1", 0), Session) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield f"ftp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Clients may disconnect in the middle of a file."""


class _Session(socketserver.StreamRequestHandler):
    folder: Path
    login: tuple[str, str]
    _listener: socket.socket

    def is_busy(self) -> bool:
        raise NotImplementedError

    def handle(self) -> None:
        if self.is_busy():
            self._say("421 Too many connections")
            return
        self._user, self._start = "", 0
        # The end of ABOR comes out of band.
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_OOBINLINE, 1)
        self._say("220 Ready")
        for line in self.rfile:
            command, _, argument = line.decode().strip().partition(" ")
            answer = getattr(self, f"_do_{command.lower()}", None)
            self._say("502 Not known" if answer is None else answer(argument))

    def _say(self, line: str) -> None:
        self.wfile.write(f"{line}\r\n".encode())

    def _do_user(self, name: str) -> str:
        self._user = name
        return "331 Password, please"

    def _do_pass(self, password: str) -> str:
        is_known = (self._user, password) == self.login
        return "230 Welcome" if is_known else "530 Login incorrect"

    def _do_type(self, _: str) -> str:
        return "200 As you like"

    def _do_rest(self, start: str) -> str:
        self._start = int(start)
        return "350 From there"

    def _do_pasv(self, _: str) -> str:
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        return f"227 Passive (127,0,0,1,{port // 256},{port % 256})"

    def _do_mlsd(self, path: str) -> str:
        try:
            entries = sorted(os.scandir(self._path(path)), key=lambda entry: entry.name)
        except OSError:
            return "550 No such folder"
        lines = [
            f"type={'dir' if e.is_dir() else 'file'};size={e.stat().st_size}; {e.name}\r\n"
            for e in entries
        ]
        return self._send("".join(lines).encode())

    def _do_retr(self, path: str) -> str:
        try:
            content = self._path(path).read_bytes()
        except OSError:
            return "550 No such file"
        content, self._start = content[self._start :], 0
        return self._send(content)

    def _do_abor(self, _: str) -> str:
        return "226 Nothing goes on"

    def _path(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _send(self, content: bytes) -> str:
        self._say("150 Here it comes")
        data, _ = self._listener.accept()
        try:
            with self._listener, data:
                data.sendall(content)
        except OSError:
            return "426 The client has enough"
        return "226 Done"
