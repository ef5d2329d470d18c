# SPDX-License-Identifier: Apache-2.0
"""Messages between two processes: pickled objects and file descriptors over a Unix socket."""

from __future__ import annotations

import pickle
import select
import socket
import struct
from collections.abc import Sequence
from typing import Any

_HEADER = struct.Struct("<QI")
_MAX_FDS = 8


class ChannelClosed(ConnectionError):
    """The process at the other end is gone."""


class Channel:
    """One end of a connection. For one thread."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._poll = select.poll()
        self._poll.register(end, select.POLLIN)

    def fileno(self) -> int:
        """Return the descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, message: object, fds: Sequence[int] = ()) -> None:
        """Send a message, with descriptors the other process gets copies of. May block."""
        payload = pickle.dumps(message, protocol=5)
        try:
            socket.send_fds(self._socket, [_HEADER.pack(len(payload), len(fds))], list(fds))
            self._socket.sendall(payload)
        except OSError as error:
            raise ChannelClosed(str(error)) from error

    def is_ready(self, timeout_s: float | None) -> bool:
        """Return whether a message, or the end of the channel, is there within a time. Blocks."""
        return bool(self._poll.poll(None if timeout_s is None else timeout_s * 1000))

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message and the descriptors that came with it. Blocks."""
        try:
            header, fds, _, _ = socket.recv_fds(self._socket, _HEADER.size, _MAX_FDS)
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not header:
            raise ChannelClosed("the other process is gone")
        length, _ = _HEADER.unpack(header + self._read(_HEADER.size - len(header)))
        return pickle.loads(self._read(length)), list(fds)

    def close(self) -> None:
        """Close this end; the other process sees it."""
        self._socket.close()

    def _read(self, count: int) -> bytearray:
        content = bytearray(count)
        view = memoryview(content)
        while view:
            try:
                got = self._socket.recv_into(view)
            except OSError as error:
                raise ChannelClosed(str(error)) from error
            if not got:
                raise ChannelClosed("the other process ended in the middle of a message")
            view = view[got:]
        return content
