# SPDX-License-Identifier: Apache-2.0
"""A crew of nobody: the consumer builds its batches itself, when it asks for them."""

from __future__ import annotations

import os
from collections.abc import Callable

from robostream.crew.crew import Texts
from robostream.crew.messages import Assign, Begin, Failed
from robostream.crew.station import Station
from robostream.stream import Tour


class HomeCrew:
    """Does in this process what a `Crew` lets others do. For one thread of the process."""

    def __init__(self, station: Station) -> None:
        self._process = os.getpid()
        self._station = station
        self._next_tour = 0
        self._closed = False

    @property
    def is_usable(self) -> bool:
        """Whether this process may use it: it made it, and it was not closed."""
        return not self._closed and self._process == os.getpid()

    @property
    def pids(self) -> list[int]:
        """The process numbers of the workers: none."""
        return []

    def begin(self, tour: Tour) -> int:
        """Begin a new iterator; return its number."""
        number = self._next_tour
        self._next_tour += 1
        self._station.begin(Begin(number, tour.cut, tour.start), tour.plan)
        return number

    def assign(self, tour: int, step: int, slot: int) -> None:
        """Note in which slot a batch is to be built."""
        self._station.assign(Assign(tour, step, slot))

    def end(self, tour: int, on_idle: Callable[[], None]) -> None:
        """Forget an iterator, whose slots are free at once."""
        if self.is_usable:
            self._station.end(tour)
        on_idle()

    def settle(self) -> None:
        """Do nothing: nobody else writes."""

    def wait(self, tour: int, step: int, timeout_s: float) -> Texts | Failed | None:
        """Build a batch and return its texts, or what went wrong."""
        done = self._station.build(tour)
        if isinstance(done, Failed):
            return done
        assert done.step == step, "batches are built in order"
        return done.texts

    def close(self) -> None:
        """Let go of everything."""
        if self.is_usable:
            self._station.close()
        self._closed = True
