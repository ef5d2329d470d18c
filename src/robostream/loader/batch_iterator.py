# SPDX-License-Identifier: Apache-2.0
"""`BatchIterator`: the batches of one epoch; `NextEpoch`: the first batches of the next.

Workers go on into the next epoch while the consumer takes the last batches of this one. Nothing of
it is delivered before an iterator asks for exactly these batches. Both epochs together have as many
batches built ahead as one, and each worker closes one epoch before it opens the next.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NoReturn, SupportsIndex

from robostream.batches import Texts
from robostream.device import Tensors
from robostream.errors import SelectionError, WorkerError
from robostream.loader.cursor import StreamCursor
from robostream.loader.position import Position, refuse_copy
from robostream.loader.running_pool import RunningPool
from robostream.loader.stats import LoaderStats
from robostream.plan import Cursor, Schedule
from robostream.progress import Progress
from robostream.workers import Failed

logger = logging.getLogger(__name__)

Batch = dict[str, Any]

# Batches are assigned in turns of half the batches that are built ahead.
_TURNS_PER_DEPTH = 2


class BatchQueue:
    """The batches of a schedule that a pool builds, in order. Ends when it is dropped."""

    # None until it is whole, and when it has ended: then there is nothing to end.
    _number: int | None = None

    def __init__(
        self,
        schedule: Schedule,
        running: RunningPool,
        timeout_s: float,
        after: BatchQueue | None = None,
    ) -> None:
        """Begin the batches; workers first build what is assigned to the queue `after`."""
        self.schedule = schedule
        self.running = running  # the pool that builds the batches, and their memory
        self.timeout_s = timeout_s  # how long to wait for a batch; 0 for no limit
        self.num_steps = schedule.num_steps
        self.step = 0  # the next one to take
        self.slots: deque[int] = deque()  # of the batches that are assigned and not taken
        number = None if after is None else after._number
        self._number = running.pool.begin(schedule, timeout_s, number)

    @property
    def position(self) -> int:
        """The position of the epoch at which that one begins."""
        return self.schedule.start + self.step * self.schedule.cut.step_size

    @property
    def num_unassigned(self) -> int:
        """How many batches of the schedule are not assigned yet."""
        return self.num_steps - self.step - len(self.slots)

    def assign(self, most: int) -> None:
        """Have up to so many more batches built, while slots are free."""
        assert self._number is not None
        before = len(self.slots)
        for _ in range(min(most, self.num_unassigned)):
            slot = self.running.slots.take()
            if slot is None:
                break
            self.slots.append(slot)
        if slots := tuple(self.slots)[before:]:
            self.running.pool.assign(self._number, slots)

    def wait(self) -> Texts | Failed:
        """Return the texts of the next batch once it is built, or why it failed. Blocks."""
        assert self._number is not None
        return self.running.pool.wait(self._number, self.step)

    def is_built(self) -> bool:
        """Return whether the next batch is assigned and known to be built."""
        assert self._number is not None
        return bool(self.slots) and self.running.pool.is_built(self._number, self.step)

    def take(self) -> int:
        """Return the slot of the next batch, which is built, and go on to the one after it."""
        self.step += 1
        return self.slots.popleft()

    def end(self) -> None:
        """Have nothing more built. Never blocks; any thread may call it."""
        number, self._number = self._number, None
        if number is not None:
            unused = list(self.slots)
            self.slots.clear()
            on_idle = functools.partial(self.running.slots.give_all, unused)
            self.running.pool.end(number, on_idle)

    def __del__(self, _is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # While Python exits, modules lose their names, and workers end by themselves.
        if not _is_exiting():
            self.end()


class NextEpoch:
    """The first batches of a loader's next epoch, until an iterator takes them.

    Thread-safe: whoever takes the queue has it alone. Uses no lock: the garbage collector may close
    an iterator, and that drop the queue, at any moment.
    """

    def __init__(self) -> None:
        self._queues: deque[BatchQueue] = deque()

    def put(self, queue: BatchQueue) -> None:
        """Keep a queue instead of the one before."""
        self.drop()
        self._queues.append(queue)

    def take(self) -> BatchQueue | None:
        """Return the queue and forget it; None if there is none."""
        try:
            return self._queues.pop()
        except IndexError:
            return None

    def open(
        self,
        schedule: Schedule,
        running: RunningPool,
        timeout_s: float,
        after: BatchQueue | None = None,
    ) -> BatchQueue:
        """Return all batches of a schedule: the queue if it has exactly these, else a new one."""
        queue = self.take()
        if queue is not None:
            ours = queue.schedule
            if (
                (queue.running is running and queue.timeout_s == timeout_s)
                and (queue.step, ours.start, ours.cut) == (0, schedule.start, schedule.cut)
                and ours.plan.is_same_order(schedule.plan)
            ):
                return queue
            queue.end()
        return BatchQueue(schedule, running, timeout_s, after)

    def keep_for(self, start: Cursor) -> None:
        """End the queue unless it begins at a cursor, as the next iterator does."""
        queue = self.take()
        if queue is None:
            return
        if Cursor(queue.schedule.plan.epoch, queue.schedule.start) == start:
            self.put(queue)
        else:
            queue.end()

    def drop(self) -> None:
        """End the queue, if there is one."""
        while (queue := self.take()) is not None:
            queue.end()


@dataclass(eq=False, repr=False)
class BatchIterator(Iterator[Batch]):
    """Delivers the batches of a queue in order; threads that share it take turns.

    Moves the position of the loader and that of its stream, unless they were set since. Closes its
    progress.
    """

    _queue: BatchQueue
    _next_epoch: NextEpoch
    _source: StreamCursor
    _position: Position
    _versions: tuple[int, int]  # of both positions when the iterator was asked for
    _stats: LoaderStats
    _progress: Progress
    # None until it is whole: an interrupt inside the constructor leaves nothing to close.
    _process: int | None = field(default=None, init=False)
    # The next batch, if it is becoming tensors already.
    _started: tuple[Callable[[], Tensors], Texts, int] | None = field(default=None, init=False)
    _has_begun_next: bool = field(default=False, init=False)
    _is_closed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._running, self._pool = self._queue.running, self._queue.running.pool
        self._epoch = self._queue.schedule.plan.epoch
        self._steps_left = self._queue.num_steps
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
                    self._move_to(Cursor(self._epoch + 1, 0))
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
            self._progress.close()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def __del__(self, _is_exiting: Callable[[], bool] = sys.is_finalizing) -> None:
        # While Python exits, modules lose their names, and workers end by themselves.
        if self._process is not None and not _is_exiting():
            self.close()

    def _next(self) -> Batch:
        began = time.perf_counter()
        self._pool.check()
        tensors, texts, size = self._started or self._start()
        self._started = None
        batch: Batch = {**tensors()}
        waited_s = time.perf_counter() - began
        queue = self._queue
        steps_left, position = queue.num_steps - queue.step, queue.position
        # Before the batch counts as delivered: an interrupt may come in what follows.
        self._look_ahead()
        for key in self._running.texts:
            values = texts.get(key, {})
            batch[key] = [values[number] for number in range(size)]
        self._steps_left = steps_left
        self._stats.add(size, waited_s)
        self._progress.update(size)
        self._move_to(Cursor(self._epoch, position) if steps_left else Cursor(self._epoch + 1, 0))
        return batch

    def _move_to(self, cursor: Cursor) -> None:
        """Record that everything before a cursor is delivered."""
        version, adopted = self._versions
        self._position.deliver(cursor, version)
        self._source.position.deliver_to_loader(adopted)
        if cursor.epoch > self._epoch:
            logger.info("epoch %d: %s", self._epoch, self._stats.line())
            if bad := self._source.bad_episodes.summary():
                logger.warning("epoch %d: %s", self._epoch, bad)

    def _assign(self) -> None:
        """Have the next batches built, up to `depth` of them, while slots are free.

        Assigns several at a time: each message to all workers takes the consumer's time.
        """
        queue, depth = self._queue, self._running.depth
        missing = depth - len(queue.slots)
        if queue.slots and missing < depth // _TURNS_PER_DEPTH:
            return
        queue.assign(missing)
        if len(queue.slots) < depth and queue.num_unassigned:
            self._next_epoch.drop()
            if not queue.slots:
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
            if self._queue.slots:
                return

    def _wait(self) -> Texts:
        while True:
            self._assign()
            if not self._queue.slots:
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
        bad_episodes = self._source.bad_episodes
        bad_episodes.handle(failed.sample, schedule.plan, failed.trace)
        queue.end()
        self._next_epoch.drop()
        self._has_begun_next = False
        rest = Schedule(bad_episodes.plan_of(schedule.plan), schedule.cut, queue.position)
        self._queue = BatchQueue(rest, queue.running, queue.timeout_s)

    def _start(self) -> tuple[Callable[[], Tensors], Texts, int]:
        """Wait for the next batch, start to make it into tensors, and return its texts and size."""
        texts, queue = self._wait(), self._queue
        size = len(queue.schedule.positions(queue.step))
        return self._running.transfer.begin(queue.take(), size), texts, size

    def _look_ahead(self) -> None:
        """Have more batches built, and start with the next one if it is built.

        If workers have ended, the next call raises: this one has a batch to deliver.
        """
        with contextlib.suppress(WorkerError):
            self._assign()
            if self._running.transfer.begins_early and self._queue.is_built():
                self._started = self._start()
            if self._pool.builds_ahead and not self._queue.num_unassigned:
                self._assign_next_epoch()

    def _assign_next_epoch(self) -> None:
        """Have batches of the next epoch built in the place of those taken from this one."""
        depth = self._running.depth
        ahead = self._next_epoch.take() if self._has_begun_next else self._begin_next_epoch()
        if ahead is not None:
            room = depth - len(self._queue.slots) - len(ahead.slots)
            if room >= max(1, depth // _TURNS_PER_DEPTH):
                ahead.assign(room)
            self._next_epoch.put(ahead)

    def _begin_next_epoch(self) -> BatchQueue | None:
        queue, depth = self._queue, self._running.depth
        if depth - len(queue.slots) < depth // _TURNS_PER_DEPTH:
            return None
        self._has_begun_next = True
        if (self._position.version, self._source.position.version) != self._versions:
            return None  # the next iterator begins elsewhere
        # The next iterator raises if there is nothing to deliver.
        with contextlib.suppress(SelectionError):
            plan = self._source.current_plan(self._epoch + 1)
            schedule = Schedule(plan, queue.schedule.cut, 0)
            return self._next_epoch.open(schedule, self._running, queue.timeout_s, queue)
        return None
