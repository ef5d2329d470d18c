# SPDX-License-Identifier: Apache-2.0
"""A crew without workers: the consumer builds each batch itself when it asks for it."""

from __future__ import annotations

from collections.abc import Callable

from robostream.batches import Texts
from robostream.errors import WorkerError
from robostream.plan import Schedule
from robostream.workers.messages import Assign, Begin, Failed
from robostream.workers.pool import CLOSED
from robostream.workers.turns import Turns
from robostream.workers.worker_loop import WorkerLoop


class InProcessPool:
    """Builds batches in this process, as a `WorkerPool` does in workers. Threads take turns."""

    def __init__(self, station: WorkerLoop) -> None:
        self._station = station
        self._turns = Turns()
        self._next_tour = 0
        self._closed = False

    @property
    def is_usable(self) -> bool:
        """Whether this process made it and nobody has closed it."""
        return not self._closed and self._turns.is_own_process

    @property
    def pids(self) -> list[int]:
        """The process numbers of the workers: none."""
        return []

    def begin(self, tour: Schedule, timeout_s: float) -> int:
        """Begin a new iterator; return its number."""
        with self._turns.turn(self._end):
            self._check()
            number = self._next_tour
            self._next_tour += 1
            self._station.begin(Begin(number, tour.cut, tour.start), tour.plan)
            return number

    def assign(self, tour: int, step: int, slots: tuple[int, ...]) -> None:
        """Note in which slots the batches from `step` on are to be built."""
        with self._turns.turn(self._end):
            self._check()
            self._station.assign(Assign(tour, step, slots))

    def end(self, tour: int, on_idle: Callable[[], None]) -> None:
        """Close an iterator; `on_idle` is called once its slots are free."""
        self._turns.end(tour, on_idle, self._end)

    def settle(self, timeout_s: float) -> None:
        """See to it that the slots of all ended iterators are free."""
        with self._turns.turn(self._end):
            pass

    def wait(self, tour: int, step: int) -> Texts | Failed:
        """Build a batch and return its texts, or what went wrong."""
        with self._turns.turn(self._end):
            self._check()
            try:
                done = self._station.build(tour)
            except BaseException:
                # Ctrl-C came in the middle of a batch. A half-built batch is not continued.
                self._closed = True
                raise
        if isinstance(done, Failed):
            return done
        assert done.step == step, "batches are built in order"
        return done.texts.get(step, {})

    def is_built(self, tour: int, step: int) -> bool:
        """Return False: a batch is built when it is waited for."""
        return False

    def check(self) -> None:
        """Raise WorkerError if it was closed, or this process is a fork."""
        self._turns.check_process()
        self._check()

    def close(self) -> None:
        """Close all iterators and files."""
        if self.is_usable:
            self._closed = True
            self._station.close()

    def _end(self, tour: int, on_idle: Callable[[], None]) -> None:
        self._station.end(tour)
        on_idle()

    def _check(self) -> None:
        if self._closed:
            raise WorkerError(CLOSED)
