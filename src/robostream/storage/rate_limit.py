# SPDX-License-Identifier: Apache-2.0
"""How fast all processes of this machine may ask one server.

A server that says "too many requests" says it to the machine, or to the whole cluster, not to the
process that happened to ask. So what was said is kept in a small file for each server, which all
processes of the machine read before they ask: until when nobody asks, and how far apart requests
are. The distance doubles when a request is refused and shrinks while requests are answered, by the
same share every second however many there are, so that machines that share a server's patience find
their part of it. A server that never refused is asked without waiting.
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

_FORM = struct.Struct("<ddd")
_FIRST_GAP_S = 0.01
_WIDEST_GAP_S = 2.0
# Below this there is no point in waiting.
_NARROWEST_GAP_S = 0.002
# The rate doubles in ten seconds without a refusal.
_RECOVERY_PER_S = math.log(2) / 10
# Nobody waits longer than this for a turn: what a file says may be from another clock.
_LONGEST_WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Turns:
    """When the next request may be sent, how far apart they are, and when that last widened."""

    next_at: float = 0.0
    gap_s: float = 0.0
    widened_at: float = 0.0

    def take(self, now: float) -> tuple[Turns, float]:
        """Return what holds after one more request has its turn, and when that is. Pure."""
        turn = min(max(now, self.next_at), now + _LONGEST_WAIT_S)
        return replace(self, next_at=turn + self.gap_s), turn

    def refuse(self, now: float, sent_at: float, wait_s: float) -> Turns:
        """Return what holds after a request was refused. Pure.

        Requests that were on their way together are refused together: that widens the gap once.
        """
        next_at = max(self.next_at, now + wait_s)
        if sent_at <= self.widened_at:
            return replace(self, next_at=next_at)
        gap_s = min(max(2 * self.gap_s, _FIRST_GAP_S), _WIDEST_GAP_S)
        return Turns(next_at, gap_s, now)

    def answer(self) -> Turns:
        """Return what holds after a request was answered. Pure."""
        gap_s = self.gap_s * math.exp(-_RECOVERY_PER_S * self.gap_s)
        return replace(self, gap_s=gap_s if gap_s > _NARROWEST_GAP_S else 0.0)


class RateLimit:
    """The turns of one server. Thread-safe, and shared by all processes that use the folder."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder = folder
        self._name = hashlib.sha256(server.encode()).hexdigest()[:32]
        self._opened: tuple[int, int] | None = None

    def wait(self) -> float:
        """Block until a request may be sent, and return the seconds waited."""
        now = time.time()
        turns = self._read()
        if not turns.gap_s and turns.next_at <= now:
            return 0.0
        with self._locked():
            after, turn = self._read().take(now)
            self._write(after)
        time.sleep(max(turn - now, 0.0))
        return max(turn - now, 0.0)

    def refuse(self, sent_at: float, wait_s: float) -> None:
        """Note that the server refused a request, and for how long it wants none."""
        with self._locked():
            self._write(self._read().refuse(time.time(), sent_at, wait_s))

    def answer(self) -> None:
        """Note that the server answered a request."""
        if self._read().gap_s:
            with self._locked():
                self._write(self._read().answer())

    def _read(self) -> Turns:
        content = os.pread(self._file(), _FORM.size, 0)
        return Turns(*_FORM.unpack(content)) if len(content) == _FORM.size else Turns()

    def _write(self, turns: Turns) -> None:
        os.pwrite(self._file(), _FORM.pack(turns.next_at, turns.gap_s, turns.widened_at), 0)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Of a descriptor of its own, so that threads exclude each other too.
        descriptor = os.open(f"/proc/self/fd/{self._file()}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _file(self) -> int:
        if self._opened is None or self._opened[0] != os.getpid():
            self._opened = os.getpid(), _open(self._folder, self._name)
        return self._opened[1]


def _open(folder: Path, name: str) -> int:
    try:
        make_private_folder(folder)
        return open_private(folder / name, os.O_RDWR | os.O_CREAT)
    except OSError:
        # A home that cannot be written to: this process keeps to its own pace.
        return os.memfd_create("pace", os.MFD_CLOEXEC)
