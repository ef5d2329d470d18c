# SPDX-License-Identifier: Apache-2.0
"""The protocol between the consumer and its workers: the messages, and the channel they pass.

A message is a pickled object, with file descriptors, over a Unix socket that sends and receives
whole messages only. A message too large for the socket is written to shared memory, and the socket
carries its descriptor. In all messages, `iterator` is the number of an iterator.
"""

from __future__ import annotations

import errno
import fcntl
import os
import pickle
import select
import socket
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle

from robostream.assemble import BatchLayout
from robostream.batches import BadSampleError, Texts, WorkerBudgets
from robostream.device import BatchFormat, create_memory, map_memory

if TYPE_CHECKING:
    from robostream.device import DeviceConfig

# Larger messages are sent as shared memory. A socket accepts much more than this at once.
_INLINE_BYTES = 16 * 1024
_MAX_FDS = 8
_INLINE, _IN_MEMORY = b"\0", b"\1"


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """The settings that all workers of a pool share, with their arrays in shared memory.

    Attributes:
        layout: How samples lie in a batch.
        batches: How batches lie in their slots.
        budgets: The limits of each worker.
        on_device: The GPU memory for frames that the GPU decodes; None if the CPU decodes.
    """

    layout: BatchLayout
    batches: BatchFormat
    budgets: WorkerBudgets
    on_device: DeviceConfig | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """An iterator begins; the descriptor of its packed Schedule comes with it.

    Its batches are built when none of the iterator `after` is left to build.
    """

    iterator: int
    after: int | None


@dataclass(frozen=True, slots=True)
class Assign:
    """Build the next batches of an iterator, one in each of `slots`."""

    iterator: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class End:
    """An iterator is closed. A worker sends this back once it does not write to its slots."""

    iterator: int


@dataclass(frozen=True, slots=True)
class Built:
    """A worker has written its parts of all batches up to `step`; texts by step."""

    iterator: int
    step: int
    texts: dict[int, Texts]


@dataclass(frozen=True, slots=True)
class Failed:
    """A worker could not build a sample of batch `step`.

    `trace` is the traceback in the worker process, empty if the consumer built the batch itself.
    """

    iterator: int
    step: int
    sample: BadSampleError
    trace: str = ""

    def to_picklable(self) -> Failed:
        """Return a copy with its traceback as text, and its error as text if pickle changes it."""
        episode, frame, position, error = self.sample.args
        trace = "".join(traceback.format_exception(error))
        error.__cause__ = error.__context__ = error.__traceback__ = None
        try:
            copy = pickle.loads(encode(error))
            is_whole = type(copy).__name__ == type(error).__name__ and copy.args == error.args
        except Exception:  # a user's class may raise anything here
            is_whole = False
        if not is_whole:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        sample = BadSampleError(episode, frame, position, error)
        return Failed(self.iterator, self.step, sample, trace)


@dataclass(frozen=True, slots=True)
class Crashed:
    """A worker ends because of an error outside of building; `trace` is the traceback."""

    trace: str


class ChannelClosed(ConnectionError):
    """The process at the other end is gone."""


def encode(message: object) -> bytes:
    """Return a message as bytes; classes defined in a script or notebook are pickled by value."""
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
        """Return a channel, and the socket at its other end for another process."""
        ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ends[0], ends[1]:
            # A program may be started with standard output and errors closed. The sockets must not
            # get their numbers.
            ours, theirs = (
                socket.socket(fileno=fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 3)) for end in ends
            )
        return Channel(ours), theirs

    def fileno(self) -> int:
        """Return the descriptor of the socket, for `select`."""
        return self._fd

    def send(self, payload: bytes, fds: Sequence[int] = ()) -> bool:
        """Send an encoded message and copies of descriptors; return False if the socket is full.

        Also returns False if too many descriptors are on their way: all that this user's processes
        have sent and nobody has received may be as many as this process may open. Privileged
        processes have no such limit.
        """
        if len(payload) <= _INLINE_BYTES:
            return self._send(_INLINE + payload, fds)
        memory = create_memory(len(payload))
        try:
            os.pwrite(memory, payload, 0)
            return self._send(_IN_MEMORY, [memory, *fds])
        finally:
            os.close(memory)

    def is_ready(self, timeout_s: float) -> bool:
        """Return whether `receive` has something to return or raise. Blocks up to a timeout."""
        return self._wait(select.POLLIN, timeout_s)

    def has_room(self, timeout_s: float) -> bool:
        """Return whether the socket accepts a message. Blocks up to a timeout."""
        return self._wait(select.POLLOUT, timeout_s)

    def is_closed(self, timeout_s: float) -> bool:
        """Return whether the other end is closed. Blocks up to a timeout; any thread may ask."""
        return self._wait(0, timeout_s)

    def receive(self) -> tuple[Any, list[int]] | None:
        """Return the next message and its descriptors; None if there is none yet."""
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
        memory, *others = fds
        try:
            return pickle.loads(map_memory(memory).data), others
        finally:
            os.close(memory)

    def last_trace(self) -> str | None:
        """Return the traceback that a worker sent before it ended; None if it sent none."""
        failures = 0
        # The first failure may only mean that the worker left our messages unread. Its own messages
        # can be read after it.
        while failures < 2:
            try:
                received = self.receive()
            except ChannelClosed:
                failures += 1
                continue
            if received is None:
                return None
            if isinstance(received[0], Crashed):
                return received[0].trace
        return None

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
            if error.errno == errno.ETOOMANYREFS:
                return False
            raise ChannelClosed(str(error)) from error
        return True

    def _wait(self, event: int, timeout_s: float) -> bool:
        poll = select.poll()
        poll.register(self._fd, event)
        return bool(poll.poll(timeout_s * 1000))
