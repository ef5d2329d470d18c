# SPDX-License-Identifier: Apache-2.0
"""`BatchPool`: builds the batches of a loader; `InProcessPool`: in the consumer's own process."""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from robostream.batches import Texts
from robostream.errors import WorkerError
from robostream.plan import Schedule
from robostream.workers.processes import park_at_shutdown
from robostream.workers.protocol import Failed

if TYPE_CHECKING:
    from robostream.workers.worker_main import Worker

_Result = TypeVar("_Result")
_CLOSED = "the workers of this iterator were ended with loader.close(); call iter(loader) again"


class BatchPool(ABC):
    """Builds the batches of several iterators. Thread-safe: one thread at a time.

    A program may drop an iterator at any moment: in another thread, or in a garbage collection
    during another iterator's work. So `end` only queues the iterator. Whichever thread holds the
    lock next closes it.

    Attributes:
        builds_ahead: Whether assigned batches are built before anyone waits for them.
    """

    builds_ahead: bool

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._dropped: deque[tuple[int, Callable[[], None]]] = deque()
        self._numbers = itertools.count()
        self._why_closed = _CLOSED

    @property
    @abstractmethod
    def is_open(self) -> bool:
        """Whether nobody has closed the pool."""

    @abstractmethod
    def _end(self, iterator: int, on_idle: Callable[[], None]) -> None:
        """Close an iterator. The caller holds the lock."""

    @property
    def is_usable(self) -> bool:
        """Whether this process, not its parent, made the pool, and nobody has closed it."""
        return self.is_open and self._process == os.getpid()

    def check(self) -> None:
        """Raise WorkerError if the pool was closed, or this process is a fork."""
        if self._process != os.getpid():
            raise WorkerError(
                f"this iterator was made by process {self._process}, and this process is a fork of "
                "it; call iter(loader) here for an iterator with workers of its own"
            )
        if not self.is_open:
            raise self._closed()

    def end(self, iterator: int, on_idle: Callable[[], None]) -> None:
        """Close an iterator; the pool calls `on_idle` once nothing writes to its slots.

        Any thread may call this at any moment, the garbage collector too. Never blocks.
        """
        if self._process != os.getpid():
            return
        self._dropped.append((iterator, on_idle))
        self._if_unlocked(self._end_dropped, None)

    def _if_unlocked(self, action: Callable[[], _Result], otherwise: _Result) -> _Result:
        """Run an action with the lock held; if the lock is taken, return `otherwise` at once."""
        is_taken: list[bool] = []
        try:
            # An interrupt may come after any call: after `acquire()`, before its result is stored,
            # it would leave the lock taken for ever. In this line, nothing comes between the two.
            is_taken += map(self._lock.acquire, (False,))
            return action() if is_taken[0] else otherwise
        finally:
            if True in is_taken:
                self._lock.release()

    def _end_dropped(self) -> None:
        """Close the iterators that were dropped. The caller holds the lock.

        Whatever takes the lock calls `check` first, as a fork's copy of the lock may be taken for
        ever; then uses `with self._lock` itself; then calls this. An interrupt could leave a
        context manager that did all three suspended, with the lock, in the interrupt's traceback.
        """
        while self._dropped:
            self._end(*self._dropped.popleft())

    def _closed(self) -> WorkerError:
        park_at_shutdown()
        return WorkerError(self._why_closed)


class InProcessPool(BatchPool):
    """Builds batches in the consumer's own process when it asks for them, like a `WorkerPool`."""

    builds_ahead = False
    is_open = True

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers: none."""
        return []

    def begin(self, schedule: Schedule, timeout_s: float, after: int | None = None) -> int:
        """Begin a new iterator; return its number."""
        self.check()
        with self._lock:
            self._end_dropped()
            number = next(self._numbers)
            self._worker.begin(number, schedule, after)
            return number

    def assign(self, iterator: int, slots: tuple[int, ...]) -> None:
        """Record the slots in which to build the next batches."""
        self.check()
        with self._lock:
            self._end_dropped()
            self._worker.assign(iterator, slots)

    def wait(self, iterator: int, step: int) -> Texts | Failed:
        """Build a batch and return its texts, or why it failed."""
        self.check()
        with self._lock:
            self._end_dropped()
            try:
                done = self._worker.build(iterator)
            except BaseException:
                # Ctrl-C came in the middle of a batch. A half-built batch is not continued.
                self.is_open = False
                raise
        if isinstance(done, Failed):
            return done
        assert done.step == step, "batches are built in order"
        return done.texts.get(step, {})

    def is_built(self, iterator: int, step: int) -> bool:
        """Return False: `wait` builds the batch."""
        return False

    def settle(self, timeout_s: float) -> None:
        """Free the slots of all ended iterators."""
        self.check()
        with self._lock:
            self._end_dropped()

    def close(self) -> None:
        """Close all iterators and files."""
        if self.is_usable:
            self.is_open = False
            self._worker.close()

    def _end(self, iterator: int, on_idle: Callable[[], None]) -> None:
        self._worker.end(iterator)
        on_idle()
