# SPDX-License-Identifier: Apache-2.0
"""Lets one thread at a time use what several iterators share, and ends iterators safely."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from robostream.errors import WorkerError

SeeTo = Callable[[int, Callable[[], None]], None]


class Turns:
    """Lets one thread at a time work, and ends iterators in between.

    A program may drop an iterator at any moment: in another thread, or because the garbage
    collector runs in the middle of another iterator's work. So `end` only notes which iterator has
    ended. Whichever thread has the next turn then calls `see_to` with the iterator's number and
    with `on_idle`, which is to be called once the iterator's slots are free.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._ended: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_own_process(self) -> bool:
        """Whether this is the process that made this object, not a fork of it."""
        return self._process == os.getpid()

    @contextmanager
    def turn(self, see_to: SeeTo) -> Iterator[None]:
        """Wait for a turn, see to the iterators that have ended, then run the block."""
        self.check_process()
        with self._lock:
            self._see_to_ended(see_to)
            yield

    @contextmanager
    def turn_if_free(self) -> Iterator[bool]:
        """Run the block in a turn, or, if another thread has it, without; yield which."""
        self.check_process()
        has_turn = self._lock.acquire(blocking=False)
        try:
            yield has_turn
        finally:
            if has_turn:
                self._lock.release()

    def check_process(self) -> None:
        """Raise WorkerError in a fork of the process that made this object."""
        if not self.is_own_process:
            raise WorkerError(
                f"this iterator was made by process {self._process}, and this process is a fork of "
                "it; call iter(loader) here for an iterator with workers of its own"
            )

    def end(self, tour: int, on_idle: Callable[[], None], see_to: SeeTo) -> None:
        """Note that an iterator has ended, and see to it at once if no thread has the turn."""
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
