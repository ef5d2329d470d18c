# SPDX-License-Identifier: Apache-2.0
"""Messages between two processes: pickled objects and file descriptors over a Unix socket.

The socket sends and receives whole messages only, whatever interrupts the process. A message too
large for the socket is written to shared memory, and only its descriptor is sent.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import select
import socket
from collections.abc import Sequence
from typing import Any

import cloudpickle

from robostream.device import create_memory, map_memory

# Larger messages are sent as shared memory. A socket could take much more than this at once.
_INLINE_BYTES = 16 * 1024
_MAX_FDS = 8
_INLINE, _APART = b"\0", b"\1"


class ChannelClosed(ConnectionError):
    """The process at the other end is gone."""


def encode(message: object) -> bytes:
    """Return a message as bytes; classes that a script or a notebook defines are copied whole."""
    try:
        return pickle.dumps(message, protocol=5)
    except (pickle.PicklingError, AttributeError, TypeError):
        encoded: bytes = cloudpickle.dumps(message, protocol=5)
        return encoded


class Channel:
    """One end of a connection. For one thread."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._socket.setblocking(False)
        self._fd = end.fileno()

    @staticmethod
    def pair() -> tuple[Channel, socket.socket]:
        """Return a channel, and the socket at its other end, to hand to another process."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ends[0], ends[1]:
            # Not the numbers of standard output and errors, which a program may be started without.
            ours, theirs = (
                socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)) for end in ends
            )
        return Channel(ours), theirs

    def fileno(self) -> int:
        """Return the descriptor of the socket, to wait on with `select`."""
        return self._fd

    def send(self, payload: bytes, fds: Sequence[int] = ()) -> bool:
        """Send an encoded message, with descriptors the other process gets copies of.

        Returns False if there is no room now; nothing was sent then.
        """
        if len(payload) <= _INLINE_BYTES:
            return self._send(_INLINE + payload, fds)
        apart = create_memory(len(payload))
        try:
            os.pwrite(apart, payload, 0)
            return self._send(_APART, [apart, *fds])
        finally:
            os.close(apart)

    def is_ready(self, timeout_s: float) -> bool:
        """Wait up to a time; return whether a message, or the channel's end, has come. Blocks."""
        return self._wait(select.POLLIN, timeout_s)

    def has_room(self, timeout_s: float) -> bool:
        """Wait up to a time; return whether the socket takes a message now. Blocks."""
        return self._wait(select.POLLOUT, timeout_s)

    def receive(self) -> tuple[Any, list[int]] | None:
        """Return the next message and its descriptors; None if none has come."""
        try:
            content, fds, _, _ = socket.recv_fds(
                self._socket, 1 + _INLINE_BYTES, _MAX_FDS, socket.MSG_CMSG_CLOEXEC
            )
        except BlockingIOError:
            return None
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        if not content:
            raise ChannelClosed("the other process is gone")
        if content[:1] == _INLINE:
            return pickle.loads(memoryview(content)[1:]), fds
        apart, *others = fds
        try:
            return pickle.loads(map_memory(apart).data), others
        finally:
            os.close(apart)

    def close(self) -> None:
        """Close this end; the other process notices."""
        self._socket.close()

    def _send(self, content: bytes, fds: Sequence[int]) -> bool:
        try:
            if fds:
                socket.send_fds(self._socket, [content], list(fds))
            else:
                self._socket.send(content)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ChannelClosed(str(error)) from error
        return True

    def _wait(self, event: int, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._fd, event)
        return bool(poll.poll(timeout_s * 1000))
