# SPDX-License-Identifier: Apache-2.0
"""The request rate per server, shared by all processes of the machine.

A server that answers "too many requests" means the machine or the whole cluster, not one process.
So each server has a small file that all processes of the machine read before a request: when the
next request may be sent, and the gap between requests. The gap doubles when a request is throttled
and shrinks while requests succeed, by the same share every second whatever the number of requests,
so that machines that share a server's limit converge to their shares of it. A server that never
throttled has no gap.
"""

from __future__ import annotations

import fcntl
import hashlib
import math
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from robostream.storage.safe_files import make_private_folder, open_private

_FORMAT = struct.Struct("<ddd")
_FIRST_GAP_S = 0.01
_MAX_GAP_S = 2.0
_MIN_GAP_S = 0.002
# The rate doubles in ten seconds without throttling.
_RECOVERY_PER_S = math.log(2) / 10
# The longest wait for a request: the file may come from another clock.
_MAX_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class RateState:
    """When the next request may be sent, the gap between requests, when the gap last widened."""

    next_at: float = 0.0
    gap_s: float = 0.0
    widened_at: float = 0.0

    def schedule(self, now: float) -> tuple[RateState, float]:
        """Return the state after one more request, and when that request may be sent. Pure."""
        send_at = min(max(now, self.next_at), now + _MAX_WAIT_S)
        return replace(self, next_at=send_at + self.gap_s), send_at

    def throttled(self, now: float, sent_at: float, wait_s: float) -> RateState:
        """Return the state after a throttled request. Pure.

        Requests in flight together are throttled together; they widen the gap once.
        """
        next_at = max(self.next_at, now + wait_s)
        if sent_at <= self.widened_at:
            return replace(self, next_at=next_at)
        gap_s = min(max(2 * self.gap_s, _FIRST_GAP_S), _MAX_GAP_S)
        return RateState(next_at, gap_s, now)

    def succeeded(self) -> RateState:
        """Return the state after a successful request. Pure."""
        gap_s = self.gap_s * math.exp(-_RECOVERY_PER_S * self.gap_s)
        return replace(self, gap_s=gap_s if gap_s > _MIN_GAP_S else 0.0)


class RateLimit:
    """The rate limit of one server. Thread-safe; shared by all processes that use the folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._name = hashlib.sha256(server.encode()).hexdigest()[:32]
        self._opened: tuple[int, int] | None = None

    def wait(self) -> float:
        """Block until a request may be sent; return the seconds waited."""
        now = time.time()
        state = self._read()
        if not state.gap_s and state.next_at <= now:
            return 0.0
        with self._locked():
            after, send_at = self._read().schedule(now)
            self._write(after)
        time.sleep(max(send_at - now, 0.0))
        return max(send_at - now, 0.0)

    def note_throttled(self, sent_at: float, wait_s: float) -> None:
        """Record that the server throttled a request and wants none for `wait_s`."""
        with self._locked():
            self._write(self._read().throttled(time.time(), sent_at, wait_s))

    def note_success(self) -> None:
        """Record that the server answered a request."""
        if self._read().gap_s:
            with self._locked():
                self._write(self._read().succeeded())

    def _read(self) -> RateState:
        content = os.pread(self._fd(), _FORMAT.size, 0)
        return RateState(*_FORMAT.unpack(content)) if len(content) == _FORMAT.size else RateState()

    def _write(self, state: RateState) -> None:
        os.pwrite(self._fd(), _FORMAT.pack(state.next_at, state.gap_s, state.widened_at), 0)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Each lock has its own descriptor, so that threads exclude each other too.
        descriptor = os.open(f"/proc/self/fd/{self._fd()}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _fd(self) -> int:
        if self._opened is None or self._opened[0] != os.getpid():
            try:
                make_private_folder(self._folder)
                fd = open_private(self._folder / self._name, os.O_RDWR | os.O_CREAT)
            except OSError:
                # The folder is not writable: this process keeps a limit of its own.
                fd = os.memfd_create("rate limit", os.MFD_CLOEXEC)
            self._opened = os.getpid(), fd
        return self._opened[1]
