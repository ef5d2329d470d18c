# SPDX-License-Identifier: Apache-2.0
"""An iterator over the batches of one epoch, from the position where it begins to the end."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, Protocol, SupportsIndex

from robostream.batches import Texts
from robostream.device import BatchSlots, Finish, Tensors
from robostream.errors import WorkerError
from robostream.loader.bad_episodes import BadEpisodes
from robostream.loader.options import refuse_copy
from robostream.loader.stats import LoaderStats
from robostream.plan import Cursor, Schedule, advance
from robostream.workers import Failed

Batch = dict[str, Any]

# Workers are told of half of the batches that are built ahead at a time.
_TURNS_PER_DEPTH = 2


class Builders(Protocol):
    """Who builds batches: worker processes, or this process itself."""

    def begin(self, tour: Schedule, timeout_s: float) -> int:
        """Begin a new iterator; return its number. Nothing waits longer (0: for ever) for it."""

    def assign(self, tour: int, step: int, slots: tuple[int, ...]) -> None:
        """Let the batches from `step` on be built, one in each slot."""

    def wait(self, tour: int, step: int) -> Texts | Failed:
        """Return a batch's texts, or a `Failed`; raise WorkerError if it does not come in time."""

    def is_built(self, tour: int, step: int) -> bool:
        """Return whether a batch is known to be built, without waiting for anything."""

    def check(self) -> None:
        """Raise WorkerError if nothing more can be built."""

    def end(self, tour: int, on_idle: Callable[[], None]) -> None:
        """Close an iterator; `on_idle` is called once its slots are free."""

    def settle(self, timeout_s: float) -> None:
        """Wait until the slots of all closed iterators are free."""


class _Begun(NamedTuple):
    """A batch that is made into tensors: how to get them, and what else belongs to it."""

    tensors: Callable[[], Tensors]
    texts: Texts
    size: int
    steps_left: int
    next_cursor: Cursor


class BatchIterator(Iterator[Batch]):
    """Delivers the batches of a tour in order; threads that share it take turns.

    Args:
        tour: What is delivered.
        builders: Who builds it.
        slots: Where it is built.
        bad_episodes: The episodes set aside, and what to do with one more.
        texts: The keys of texts in a batch.
        depth: How many batches are built ahead.
        timeout_s: How long to wait for a batch; 0 for ever.
        finish: Makes the tensors of a batch from the bytes of its slot, perhaps ahead of time.
        on_deliver: Called after each batch with the next cursor and the batch's size.
        tally: Counts what is delivered.
        on_close: Called when nothing more is delivered.
    """

    def __init__(
        self,
        tour: Schedule,
        builders: Builders,
        slots: BatchSlots,
        bad_episodes: BadEpisodes,
        *,
        texts: list[str],
        depth: int,
        timeout_s: float,
        finish: Finish,
        on_deliver: Callable[[Cursor, int], None],
        tally: LoaderStats,
        on_close: Callable[[], None],
    ) -> None:
        self._tour = tour
        self._builders = builders
        self._slots = slots
        self._bad_episodes = bad_episodes
        self._texts = texts
        self._depth = depth
        self._timeout_s = timeout_s
        self._finish = finish
        self._on_deliver = on_deliver
        self._tally = tally
        self._on_close = on_close
        # The next batch to begin with; `_steps_left` are to be delivered.
        self._step = 0
        self._steps_left = tour.num_steps
        self._begun: _Begun | None = None
        self._assigned: deque[int] = deque()
        self._number: int | None = None
        self._is_closed = False
        self._process, self._turn = os.getpid(), threading.RLock()
        self._begin()

    def __len__(self) -> int:
        return self._steps_left

    def __next__(self) -> Batch:
        if os.getpid() != self._process:
            return self._next()  # which says so; a fork may have copied a lock that is held
        with self._turn:
            return self._next()

    def _next(self) -> Batch:
        if self._is_closed:
            raise StopIteration
        if not self._steps_left:
            self.close()
            if self._step == 0:
                # The rest of the epoch was too little for a batch. The next epoch follows.
                self._on_deliver(Cursor(self._tour.plan.epoch + 1, 0), 0)
            raise StopIteration
        try:
            with self._tally.waiting():
                self._builders.check()
                begun = self._begun or self._start(self._wait())
                self._begun = None
                tensors = begun.tensors()
            # Before the batch is counted as delivered: an interrupt may come here.
            self._look_ahead()
            batch = self._deliver(begun, tensors)
        except StopIteration as error:
            self.close()
            raise RuntimeError(f"building a batch raised {error!r}") from error
        except BaseException:
            self.close()
            raise
        return batch

    def close(self) -> None:
        """Close the iterator; nothing more is delivered."""
        self._is_closed = True
        self._begun = None
        self._end()
        if os.getpid() == self._process:
            self._on_close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def __del__(self) -> None:
        self.close()

    def _begin(self) -> None:
        self._number = self._builders.begin(self._tour, self._timeout_s)
        self._assign()

    def _end(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            given = list(self._assigned)
            self._assigned.clear()
            self._builders.end(number, functools.partial(self._slots.give_all, given))

    def _assign(self) -> None:
        """Let the next batches be built, up to `depth` of them, as long as slots are free.

        Several at a time: telling it to all workers takes the consumer's time.
        """
        assert self._number is not None
        ahead = len(self._assigned)
        if ahead and self._depth - ahead < self._depth // _TURNS_PER_DEPTH:
            return
        first = self._step + ahead
        for _ in range(min(self._depth - ahead, self._tour.num_steps - first)):
            slot = self._slots.take() if self._assigned else self._take_slot()
            if slot is None:
                break
            self._assigned.append(slot)
        slots = tuple(self._assigned)[ahead:]
        if slots:
            self._builders.assign(self._number, first, slots)

    def _take_slot(self) -> int | None:
        """Return a free slot, or None. Blocks until no closed iterator holds a slot any more.

        Workers may still write to the slots of closed iterators, and iterators that the program
        dropped may not be collected yet.
        """
        settle = functools.partial(self._builders.settle, self._timeout_s)
        for let_go in (lambda: None, settle, gc.collect, settle):
            let_go()
            slot = self._slots.take()
            if slot is not None:
                return slot
        return None

    def _wait(self) -> Texts:
        while True:
            self._assign()
            if not self._assigned:
                raise WorkerError(
                    "all memory for batches is in use by iterators that are still alive; close or "
                    "drop them, or make a loader for each"
                )
            assert self._number is not None
            done = self._builders.wait(self._number, self._step)
            if not isinstance(done, Failed):
                return done
            self._go_on_without(done)

    def _go_on_without(self, failed: Failed) -> None:
        """Set a bad episode aside and begin again at the consumer's position, or raise."""
        self._bad_episodes.set_aside(failed, self._tour.plan)
        self._end()
        plan = self._bad_episodes.plan_of(self._tour.plan)
        start = self._tour.start + self._step * self._tour.cut.step_size
        self._tour = Schedule(plan, self._tour.cut, start)
        self._step = 0
        self._begin()

    def _start(self, texts: Texts) -> _Begun:
        """Begin to make a batch that is built into tensors."""
        size = len(self._tour.positions(self._step))
        slot = self._assigned.popleft()
        tensors = self._finish.begin(slot, size)
        self._step += 1
        start = Cursor(self._tour.plan.epoch, self._tour.start)
        next_cursor = advance(self._tour.cut, self._tour.plan.num_frames, start, self._step)
        steps_left = self._tour.num_steps - self._step
        return _Begun(tensors, texts, size, steps_left, next_cursor)

    def _look_ahead(self) -> None:
        """Let more batches be built, and begin with the next one if it is.

        If workers have ended, the next call says so: this one has a batch to deliver.
        """
        with contextlib.suppress(WorkerError):
            self._assign()
            if self._finish.begins_early and self._assigned:
                assert self._number is not None
                if self._builders.is_built(self._number, self._step):
                    self._begun = self._start(self._wait())

    def _deliver(self, begun: _Begun, tensors: Tensors) -> Batch:
        batch: Batch = {**tensors}
        for key in self._texts:
            values = begun.texts.get(key, {})
            batch[key] = [values[place] for place in range(begun.size)]
        self._steps_left = begun.steps_left
        self._on_deliver(begun.next_cursor, begun.size)
        return batch
