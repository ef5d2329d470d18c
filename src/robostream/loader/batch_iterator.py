# SPDX-License-Identifier: Apache-2.0
"""`BatchIterator`: the batches of one epoch, from the position where it begins to the end."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, SupportsIndex

from robostream.batches import Texts
from robostream.device import Tensors
from robostream.errors import WorkerError
from robostream.loader.cursor import BadEpisodes
from robostream.loader.options import refuse_copy
from robostream.loader.running_pool import RunningPool
from robostream.loader.stats import LoaderStats
from robostream.plan import Cursor, Schedule, advance
from robostream.workers import Failed

Batch = dict[str, Any]

# Batches are assigned in turns of half the batches that are built ahead.
_TURNS_PER_DEPTH = 2


class _StartedBatch(NamedTuple):
    """A built batch that is becoming tensors, and what else belongs to it."""

    tensors: Callable[[], Tensors]
    texts: Texts
    size: int
    steps_left: int
    next_cursor: Cursor


class BatchIterator(Iterator[Batch]):
    """Delivers the batches of a schedule in order; threads that share it take turns.

    Args:
        schedule: The batches.
        running: The pool that builds them, and their memory.
        bad_episodes: The quarantined episodes, and the policy for one more.
        timeout_s: How long to wait for a batch; 0 for no limit.
        stats: Counts the time that the consumer waits.
        on_deliver: Called after each batch with the next cursor and the batch's size.
        on_close: Called when nothing more is delivered.
    """

    # None until it is whole: an interrupt inside the constructor leaves nothing to close.
    _process: int | None = None

    def __init__(
        self,
        schedule: Schedule,
        running: RunningPool,
        bad_episodes: BadEpisodes,
        *,
        timeout_s: float,
        stats: LoaderStats,
        on_deliver: Callable[[Cursor, int], None],
        on_close: Callable[[], None],
    ) -> None:
        self._schedule = schedule
        self._running, self._pool, self._slots = running, running.pool, running.slots
        self._bad_episodes = bad_episodes
        self._timeout_s = timeout_s
        self._stats = stats
        self._on_deliver = on_deliver
        self._on_close = on_close
        # The next batch to make into tensors. `_steps_left` counts those to deliver.
        self._step = 0
        self._steps_left = schedule.num_steps
        self._started: _StartedBatch | None = None
        self._assigned: deque[int] = deque()
        self._number: int | None = None
        self._is_closed = False
        self._process, self._lock = os.getpid(), threading.RLock()
        self._begin()

    def __len__(self) -> int:
        return self._steps_left

    def __next__(self) -> Batch:
        # In a fork the lock may be held for ever, and the check of the pool raises.
        is_ours = os.getpid() == self._process
        with self._lock if is_ours else contextlib.nullcontext():
            if self._is_closed:
                raise StopIteration
            if not self._steps_left:
                self.close()
                if self._step == 0:
                    # The rest of the epoch was too little for a batch. The next epoch follows.
                    self._on_deliver(Cursor(self._schedule.plan.epoch + 1, 0), 0)
                raise StopIteration
            try:
                return self._next()
            except StopIteration as error:
                self.close()
                raise RuntimeError(f"building a batch raised {error!r}") from error
            except BaseException:
                self.close()
                raise

    def close(self) -> None:
        """Close the iterator; nothing more is delivered."""
        self._is_closed = True
        self._started = None
        self._end()
        if os.getpid() == self._process:
            self._on_close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def __del__(self) -> None:
        self.close()

    def _next(self) -> Batch:
        with self._stats.waiting():
            self._pool.check()
            started = self._started or self._start(self._wait())
            self._started = None
            batch: Batch = {**started.tensors()}
        # Before the batch counts as delivered: an interrupt may come here.
        self._look_ahead()
        for key in self._running.texts:
            values = started.texts.get(key, {})
            batch[key] = [values[number] for number in range(started.size)]
        self._steps_left = started.steps_left
        self._on_deliver(started.next_cursor, started.size)
        return batch

    def _begin(self) -> None:
        self._number = self._pool.begin(self._schedule, self._timeout_s)
        self._assign()

    def _end(self) -> None:
        number, self._number = self._number, None
        if number is not None:
            unused = list(self._assigned)
            self._assigned.clear()
            self._pool.end(number, functools.partial(self._slots.give_all, unused))

    def _assign(self) -> None:
        """Have the next batches built, up to `depth` of them, while slots are free.

        Assigns several at a time: each message to all workers takes the consumer's time.
        """
        assert self._number is not None
        ahead, depth = len(self._assigned), self._running.depth
        if ahead and depth - ahead < depth // _TURNS_PER_DEPTH:
            return
        steps_left = self._schedule.num_steps - self._step
        while len(self._assigned) < min(depth, steps_left):
            slot = self._slots.take()
            if slot is None and not self._assigned:
                slot = self._reclaim_slot()
            if slot is None:
                break
            self._assigned.append(slot)
        if slots := tuple(self._assigned)[ahead:]:
            self._pool.assign(self._number, slots)

    def _reclaim_slot(self) -> int | None:
        """Return a slot that no closed iterator holds any more, or None. Blocks.

        Workers may still write to the slots of closed iterators, and iterators that the program
        dropped may not be collected yet.
        """
        settle = functools.partial(self._pool.settle, self._timeout_s)
        for free_slots in (settle, gc.collect, settle):
            free_slots()
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
            done = self._pool.wait(self._number, self._step)
            if not isinstance(done, Failed):
                return done
            self._continue_without(done)

    def _continue_without(self, failed: Failed) -> None:
        """Quarantine a bad episode and begin again at the consumer's position, or raise."""
        schedule = self._schedule
        self._bad_episodes.handle(failed.sample, schedule.plan, failed.trace)
        self._end()
        plan = self._bad_episodes.plan_of(schedule.plan)
        start = schedule.start + self._step * schedule.cut.step_size
        self._schedule = Schedule(plan, schedule.cut, start)
        self._step = 0
        self._begin()

    def _start(self, texts: Texts) -> _StartedBatch:
        """Start to make the next built batch into tensors."""
        schedule = self._schedule
        size = len(schedule.positions(self._step))
        tensors = self._running.transfer.begin(self._assigned.popleft(), size)
        self._step += 1
        start = Cursor(schedule.plan.epoch, schedule.start)
        next_cursor = advance(schedule.cut, schedule.plan.num_frames, start, self._step)
        return _StartedBatch(tensors, texts, size, schedule.num_steps - self._step, next_cursor)

    def _look_ahead(self) -> None:
        """Have more batches built, and start with the next one if it is built.

        If workers have ended, the next call raises: this one has a batch to deliver.
        """
        with contextlib.suppress(WorkerError):
            self._assign()
            if self._running.transfer.begins_early and self._assigned:
                assert self._number is not None
                if self._pool.is_built(self._number, self._step):
                    self._started = self._start(self._wait())
