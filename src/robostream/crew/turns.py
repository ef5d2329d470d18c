# SPDX-License-Identifier: Apache-2.0
"""Whose turn it is with something that iterators in several threads, and the garbage, share."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from robostream.errors import WorkerError

SeeTo = Callable[[int, Callable[[], None]], None]


class Turns:
    """Lets one thread at a time work, and notes what is to be ended between turns.

    An iterator may be dropped anywhere: in another thread, or by the garbage collector in the
    middle of another iterator's work. So ending one only makes a note, and whoever has the turn
    next sees to it.

    What sees to an ended iterator takes its number, and what to call once its slots are free.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._ended: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that began, not a fork of it."""
        return self._process == os.getpid()

    @contextmanager
    def turn(self, see_to: SeeTo) -> Iterator[None]:
        """Wait for a turn, see to what has ended, and work in the block."""
        if not self.is_own_process:
            raise WorkerError(
                f"this iterator is that of process {self._process}, of which this one is a fork; "
                "call iter(loader) here for an iterator with workers of its own"
            )
        with self._lock:
            self._see_to_ended(see_to)
            yield

    def end(self, tour: int, on_idle: Callable[[], None], see_to: SeeTo) -> None:
        """Note that an iterator has ended, and see to it if nobody has the turn."""
        if not self.is_own_process:
            return
        self._ended.append((tour, on_idle))
        if self._lock.acquire(blocking=False):
            try:
                self._see_to_ended(see_to)
            finally:
                self._lock.release()

    def _see_to_ended(self, see_to: SeeTo) -> None:
        while self._ended:
            see_to(*self._ended.popleft())
