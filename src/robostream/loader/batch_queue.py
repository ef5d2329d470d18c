# SPDX-License-Identifier: Apache-2.0
"""`BatchQueue`: batches of a schedule that workers build; `NextEpoch`: those of the next epoch.

Workers go on into the next epoch while the consumer takes the last batches of this one. Nothing of
it is delivered before an iterator asks for exactly these batches. Both epochs together have as many
batches built ahead as one, and each worker closes one epoch before it opens the next.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Callable

from robostream.batches import Texts
from robostream.loader.running_pool import RunningPool
from robostream.plan import Cursor, Schedule
from robostream.workers import Failed


class BatchQueue:
    """The batches of a schedule that a pool builds, in order. Ends when it is dropped.

    Args:
        schedule: The batches.
        running: The pool that builds them, and their memory.
        timeout_s: How long to wait for a batch; 0 for no limit.
        after: Workers first build what is assigned to that queue.

    Attributes:
        schedule: The batches.
        running: The pool that builds them, and their memory.
        timeout_s: How long to wait for a batch; 0 for no limit.
        step: The next one to take.
    """

    # None until it is whole, and when it has ended: then there is nothing to end.
    _number: int | None = None

    def __init__(
        self,
        schedule: Schedule,
        running: RunningPool,
        timeout_s: float,
        *,
        after: BatchQueue | None = None,
    ) -> None:
        self.schedule = schedule
        self.running = running
        self.timeout_s = timeout_s
        self.step = 0
        self._slots: deque[int] = deque()
        number = None if after is None else after._number
        self._number = running.pool.begin(schedule, timeout_s, number)

    @property
    def num_assigned(self) -> int:
        """How many batches are assigned and not taken."""
        return len(self._slots)

    @property
    def num_unassigned(self) -> int:
        """How many batches of the schedule are not assigned yet."""
        return self.schedule.num_steps - self.step - len(self._slots)

    def builds(self, schedule: Schedule, running: RunningPool, timeout_s: float) -> bool:
        """Return whether it has all batches of a schedule, built by a running pool."""
        ours = self.schedule
        return (
            (self.running is running and self.timeout_s == timeout_s)
            and (self.step, ours.start, ours.cut) == (0, schedule.start, schedule.cut)
            and ours.plan.is_same_order(schedule.plan)
        )

    def assign(self, most: int) -> None:
        """Have up to so many more batches built, while slots are free."""
        assert self._number is not None
        before = len(self._slots)
        for _ in range(min(most, self.num_unassigned)):
            slot = self.running.slots.take()
            if slot is None:
                break
            self._slots.append(slot)
        if slots := tuple(self._slots)[before:]:
            self.running.pool.assign(self._number, slots)

    def wait(self) -> Texts | Failed:
        """Return the texts of the next batch once it is built, or why it failed. Blocks."""
        assert self._number is not None
        return self.running.pool.wait(self._number, self.step)

    def is_built(self) -> bool:
        """Return whether the next batch is assigned and known to be built."""
        assert self._number is not None
        return bool(self._slots) and self.running.pool.is_built(self._number, self.step)

    def take(self) -> int:
        """Return the slot of the next batch, which is built, and go on to the one after it."""
        self.step += 1
        return self._slots.popleft()

    def end(self) -> None:
        """Have nothing more built. Never blocks; any thread may call it."""
        number, self._number = self._number, None
        if number is not None:
            unused = list(self._slots)
            self._slots.clear()
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

    def take_for(
        self, schedule: Schedule, running: RunningPool, timeout_s: float
    ) -> BatchQueue | None:
        """Return the queue if it has all batches of a schedule; otherwise end it."""
        queue = self.take()
        if queue is None or queue.builds(schedule, running, timeout_s):
            return queue
        queue.end()
        return None

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
