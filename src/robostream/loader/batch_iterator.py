# SPDX-License-Identifier: Apache-2.0
"""`BatchIterator`: the batches of one epoch, from the position where it begins to the end."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn, SupportsIndex

from robostream.batches import Texts
from robostream.device import Tensors
from robostream.errors import SelectionError, WorkerError
from robostream.loader.batch_queue import BatchQueue, NextEpoch
from robostream.loader.cursor import BadEpisodes
from robostream.loader.options import refuse_copy
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
        queue: Its batches, as workers build them.
        bad_episodes: The quarantined episodes, and the policy for one more.
        next_epoch: Where the first batches of the next epoch wait.
        next_schedule: Returns the schedule of the next iterator; None if that is unknown.
        stats: Counts the time that the consumer waits.
        on_deliver: Called after each batch with the next cursor and the batch's size.
        on_close: Called when nothing more is delivered.
    """

    # None until it is whole: an interrupt inside the constructor leaves nothing to close.
    _process: int | None = None

    def __init__(
        self,
        queue: BatchQueue,
        bad_episodes: BadEpisodes,
        next_epoch: NextEpoch,
        *,
        next_schedule: Callable[[], Schedule | None],
        stats: LoaderStats,
        on_deliver: Callable[[Cursor, int], None],
        on_close: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._running, self._pool = queue.running, queue.running.pool
        self._bad_episodes = bad_episodes
        self._next_epoch = next_epoch
        self._next_schedule = next_schedule
        self._stats = stats
        self._on_deliver = on_deliver
        self._on_close = on_close
        self._steps_left = queue.schedule.num_steps
        self._started: _StartedBatch | None = None
        self._has_begun_next = False
        self._is_closed = False
        self._process, self._lock = os.getpid(), threading.RLock()
        self._assign()

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
                if self._queue.step == 0:
                    # The rest of the epoch was too little for a batch. The next epoch follows.
                    self._on_deliver(Cursor(self._queue.schedule.plan.epoch + 1, 0), 0)
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
        if self._steps_left and not self._is_closed:
            self._next_epoch.drop()
        self._is_closed = True
        self._started = None
        self._queue.end()
        if os.getpid() == self._process:
            self._on_close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def __del__(self, _is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # While Python exits, modules lose their names, and workers end by themselves.
        if not _is_exiting():
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

    def _assign(self) -> None:
        """Have the next batches built, up to `depth` of them, while slots are free.

        Assigns several at a time: each message to all workers takes the consumer's time.
        """
        queue, depth = self._queue, self._running.depth
        missing = depth - queue.num_assigned
        if queue.num_assigned and missing < depth // _TURNS_PER_DEPTH:
            return
        queue.assign(missing)
        if queue.num_assigned < depth and queue.num_unassigned:
            self._next_epoch.drop()
            if not queue.num_assigned:
                self._reclaim_slots()

    def _reclaim_slots(self) -> None:
        """Have batches built in slots that no closed iterator holds any more. Blocks.

        Workers may still write to the slots of closed iterators, and iterators that the program
        dropped may not be collected yet.
        """
        settle = functools.partial(self._pool.settle, self._queue.timeout_s)
        for free_slots in (settle, gc.collect, settle):
            free_slots()
            self._queue.assign(self._running.depth)
            if self._queue.num_assigned:
                return

    def _wait(self) -> Texts:
        while True:
            self._assign()
            if not self._queue.num_assigned:
                raise WorkerError(
                    "all memory for batches is in use by iterators that are still alive; close or "
                    "drop them, or make a loader for each"
                )
            done = self._queue.wait()
            if not isinstance(done, Failed):
                return done
            self._continue_without(done)

    def _continue_without(self, failed: Failed) -> None:
        """Quarantine a bad episode and begin again at the consumer's position, or raise."""
        queue, schedule = self._queue, self._queue.schedule
        self._bad_episodes.handle(failed.sample, schedule.plan, failed.trace)
        queue.end()
        self._next_epoch.drop()
        self._has_begun_next = False
        plan = self._bad_episodes.plan_of(schedule.plan)
        start = schedule.start + queue.step * schedule.cut.step_size
        rest = Schedule(plan, schedule.cut, start)
        self._queue = BatchQueue(rest, queue.running, queue.timeout_s)

    def _start(self, texts: Texts) -> _StartedBatch:
        """Start to make the next built batch into tensors."""
        queue, schedule = self._queue, self._queue.schedule
        size = len(schedule.positions(queue.step))
        tensors = self._running.transfer.begin(queue.take(), size)
        start = Cursor(schedule.plan.epoch, schedule.start)
        next_cursor = advance(schedule.cut, schedule.plan.num_frames, start, queue.step)
        return _StartedBatch(tensors, texts, size, schedule.num_steps - queue.step, next_cursor)

    def _look_ahead(self) -> None:
        """Have more batches built, and start with the next one if it is built.

        If workers have ended, the next call raises: this one has a batch to deliver.
        """
        with contextlib.suppress(WorkerError):
            self._assign()
            if self._running.transfer.begins_early and self._queue.is_built():
                self._started = self._start(self._wait())
            if self._pool.builds_ahead and not self._queue.num_unassigned:
                self._assign_next_epoch()

    def _assign_next_epoch(self) -> None:
        """Have batches of the next epoch built in the place of those taken from this one."""
        depth = self._running.depth
        ahead = self._next_epoch.take() if self._has_begun_next else self._begin_next_epoch()
        if ahead is not None:
            room = depth - self._queue.num_assigned - ahead.num_assigned
            if room >= max(1, depth // _TURNS_PER_DEPTH):
                ahead.assign(room)
            self._next_epoch.put(ahead)

    def _begin_next_epoch(self) -> BatchQueue | None:
        depth = self._running.depth
        if depth - self._queue.num_assigned < depth // _TURNS_PER_DEPTH:
            return None
        self._has_begun_next = True
        # The next iterator raises if there is nothing to deliver.
        with contextlib.suppress(SelectionError):
            schedule = self._next_schedule()
            if schedule is not None:
                queue, running = self._queue, self._running
                ahead = self._next_epoch.take_for(schedule, running, queue.timeout_s)
                return ahead or BatchQueue(schedule, running, queue.timeout_s, after=queue)
        return None
