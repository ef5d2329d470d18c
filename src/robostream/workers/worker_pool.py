# SPDX-License-Identifier: Apache-2.0
"""`WorkerPool`: the worker processes of a loader.

Workers are fresh interpreters, not forks: they inherit no lock, thread or GPU of the consumer, and
do not run its script again. A worker ends when the consumer's end of its channel closes, and so
however the consumer ends.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import os
import select
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from robostream.batches import Texts
from robostream.device import pack
from robostream.errors import WorkerError
from robostream.plan import Schedule, WorkerShard
from robostream.workers.pool import BatchPool
from robostream.workers.processes import (
    WorkerProcess,
    end_workers,
    signals_held,
    start_worker,
)
from robostream.workers.protocol import (
    Assign,
    Begin,
    Built,
    Channel,
    ChannelClosed,
    Crashed,
    End,
    Failed,
    encode,
)

_INTERRUPTED = (
    "an interrupt came while the loader sent a message to its workers, and ended them; call "
    "iter(loader) again"
)
_NOT_STARTED = (
    "no worker can be started: too many descriptors are on their way to other processes of this "
    "user. Lower num_workers, or raise the limit of open files (ulimit -n)."
)
# Workers that have started receive their descriptors within this time.
_START_S = 60.0
# A worker whose channel is full may itself be waiting for the consumer to take a message. So the
# consumer takes messages for this long, and then tries again to send.
_RETRY_S = 0.01
# How often a waiting consumer checks that its workers still run and that no thread has closed the
# pool. Usually a channel shows both; but a process that was forked from the worker, or from the
# consumer while the worker started, may hold the worker's end open.
_CHECK_S = 1.0


class _IteratorProgress:
    """How far the workers are with the batches of one iterator.

    Attributes:
        timeout_s: How long the consumer waits for a worker; 0 for no limit.
        failed: The first batch that cannot be built, and why.
        texts: The texts of the batches that are not taken.
    """

    def __init__(self, timeout_s: float, num_workers: int) -> None:
        self.timeout_s = timeout_s
        self.failed: Failed | None = None
        self._num_built = [0] * num_workers
        self.texts: dict[int, Texts] = {}

    def slowest(self, step: int) -> int | None:
        """Return the first worker that has not built its part of a batch; None if all have."""
        for worker, num_built in enumerate(self._num_built):
            if num_built <= step:
                return worker
        return None

    def add(self, worker: int, message: Built | Failed) -> None:
        """Record a worker's report."""
        if isinstance(message, Failed):
            if self.failed is None or message.step < self.failed.step:
                self.failed = message
            return
        self._num_built[worker] = message.step + 1
        for step, own in message.texts.items():
            texts = self.texts.setdefault(step, {})
            for key, values in own.items():
                texts.setdefault(key, {}).update(values)


def _deadline(timeout_s: float) -> float:
    """Return when a timeout that begins now is over; 0 means no limit."""
    return time.monotonic() + timeout_s if timeout_s else math.inf


def _seconds_to(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


class WorkerPool(BatchPool):
    """The worker processes of a loader, for the process that made it.

    If a worker keeps the consumer waiting for longer than an iterator's `timeout_s` (0: no limit),
    for a batch or because its channel is full, the pool ends all workers and raises WorkerError.

    Args:
        shards: The share of each worker process.
        fds: Descriptors of the packed WorkerConfig, the batches, the counters and, if all workers
            share them, the decoded frames.
    """

    builds_ahead = True

    def __init__(self, shards: Sequence[WorkerShard], fds: list[int]) -> None:
        super().__init__()
        self._workers: list[WorkerProcess] = []
        self._channels: list[Channel] = []
        self._finalizer = weakref.finalize(
            self, end_workers, os.getpid(), self._workers, self._channels
        )
        # By live iterator.
        self._progress: dict[int, _IteratorProgress] = {}
        # By ended iterator: the workers that have not confirmed it, and `on_idle`.
        self._ending: dict[int, tuple[set[int], Callable[[], None]]] = {}
        with signals_held(), self._atomic():
            for shard in shards:
                channel, process = start_worker()
                self._channels.append(channel)
                self._workers.append(process)
                if not self._send(shard.worker, encode(shard), fds, _deadline(_START_S)):
                    raise self._fail(_NOT_STARTED)

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed the pool."""
        return self._finalizer.alive

    @property
    def pids(self) -> list[int]:
        """The process ids of the workers."""
        return [worker.pid for worker in self._workers]

    def begin(self, schedule: Schedule, timeout_s: float, after: int | None = None) -> int:
        """Announce a new iterator to all workers; return its number.

        Each worker first builds what it is assigned for the iterator `after`.
        """
        self.check()
        with signals_held():
            packed = io.FileIO(pack(schedule))
        with packed, self._lock:
            self._end_dropped()
            number = next(self._numbers)
            with self._atomic():
                self._progress[number] = _IteratorProgress(timeout_s, len(self._workers))
                self._send_all(Begin(number, after), timeout_s, [packed.fileno()])
        return number

    def assign(self, iterator: int, slots: tuple[int, ...]) -> None:
        """Have the workers build the next batches, one in each slot."""
        self.check()
        with self._lock:
            self._end_dropped()
            with self._atomic():
                timeout_s = self._progress[iterator].timeout_s
                self._send_all(Assign(iterator, slots), timeout_s)

    def wait(self, iterator: int, step: int) -> Texts | Failed:
        """Return a batch's texts once all workers have built it, or why one failed. Blocks."""
        progress = self._progress[iterator]
        deadline = _deadline(progress.timeout_s)
        self.check()
        with self._lock:
            self._end_dropped()
            while (worker := progress.slowest(step)) is not None:
                failed = progress.failed
                if failed is not None and failed.step <= step:
                    return failed
                if self._receive(worker):
                    continue
                # Waking up for every worker's message would take time from the workers.
                if not self._poll(deadline, worker):
                    raise self._late(worker, progress.timeout_s)
            return progress.texts.pop(step, {})

    def is_built(self, iterator: int, step: int) -> bool:
        """Return whether a batch is known to be built; waits neither for workers nor threads."""
        self.check()
        return self._if_unlocked(functools.partial(self._receive_built, iterator, step), False)

    def settle(self, timeout_s: float) -> None:
        """Wait until no worker writes for an ended iterator. Blocks."""
        deadline = _deadline(timeout_s)
        self.check()
        with self._lock:
            self._end_dropped()
            while self._ending:
                if not self._poll(deadline):
                    missing, _ = next(iter(self._ending.values()))
                    raise self._late(min(missing), timeout_s)

    def close(self) -> None:
        """End all workers. Blocks until they have ended."""
        self._finalizer()

    def _end(self, iterator: int, on_idle: Callable[[], None]) -> None:
        progress = self._progress.pop(iterator, None)
        if progress is not None and self.is_open:
            self._ending[iterator] = set(range(len(self._workers))), on_idle
            with contextlib.suppress(WorkerError), self._atomic():
                self._send_all(End(iterator), progress.timeout_s)

    @contextlib.contextmanager
    def _atomic(self) -> Iterator[None]:
        """Close the pool if the block raises: a message may have reached some workers only.

        Interrupts rarely come in such a block; usually the consumer is waiting when one comes.
        """
        try:
            yield
        except BaseException:
            self._kill(_INTERRUPTED)
            raise

    def _receive_built(self, iterator: int, step: int) -> bool:
        while (worker := self._progress[iterator].slowest(step)) is not None:
            if not self._receive(worker):
                return False
        return True

    def _send_all(self, message: object, timeout_s: float, fds: Sequence[int] = ()) -> None:
        payload, deadline = encode(message), _deadline(timeout_s)
        for worker in range(len(self._channels)):
            if not self._send(worker, payload, fds, deadline):
                raise self._late(worker, timeout_s)

    def _send(self, worker: int, payload: bytes, fds: Sequence[int], deadline: float) -> bool:
        """Send a message; return False if the channel stays full until the deadline."""
        try:
            while not self._channels[worker].send(payload, fds):
                if time.monotonic() > deadline:
                    return False
                self._poll(time.monotonic() + _RETRY_S)
        except ChannelClosed as error:
            raise self._death(worker) from error
        return True

    def _poll(self, deadline: float, worker: int | None = None) -> bool:
        """Wait for messages and receive them; return False if none came before the deadline.

        With a worker, wait for a message from it, or for the end of any worker.
        """
        self.check()
        poll = select.poll()
        for number, channel in enumerate(self._channels):
            # An end is always reported.
            poll.register(channel.fileno(), select.POLLIN if worker in (None, number) else 0)
        while not (ready := poll.poll(min(_seconds_to(deadline), _CHECK_S) * 1000)):
            self._check_workers()
            if not _seconds_to(deadline):
                return False
        found = {fd for fd, _ in ready}
        for number, channel in enumerate(self._channels):
            if channel.fileno() in found:
                self._receive(number)
        return True

    def _check_workers(self) -> None:
        """Raise WorkerError if another thread closed the pool, or if a worker has ended."""
        self.check()
        for number, process in enumerate(self._workers):
            if process.poll() is not None:
                raise self._death(number)

    def _receive(self, worker: int) -> bool:
        """Handle one message from a worker; return False if there is none."""
        with self._atomic():
            try:
                received = self._channels[worker].receive()
            except ChannelClosed as error:
                raise self._death(worker) from error
            if received is None:
                return False
            message, _ = received
            if isinstance(message, Crashed):
                raise self._fail(f"{self._name(worker)} failed:\n{message.trace}")
            self._handle(worker, message)
            return True

    def _handle(self, worker: int, message: Any) -> None:
        iterator = message.iterator
        if isinstance(message, End) and iterator in self._ending:
            missing, on_idle = self._ending[iterator]
            missing.discard(worker)
            if not missing:
                del self._ending[iterator]
                on_idle()
        elif isinstance(message, Built | Failed) and iterator in self._progress:
            self._progress[iterator].add(worker, message)

    def _late(self, worker: int, timeout_s: float) -> WorkerError:
        return self._fail(
            f"no batch came within timeout={timeout_s} s: {self._name(worker)} is still at work or "
            "stuck. All workers were ended; the next iter(loader) starts new ones. Raise the "
            "timeout, or find out what the worker waits for."
        )

    def _death(self, worker: int) -> WorkerError:
        if not self.is_open:
            return self._closed()
        trace = self._channels[worker].last_trace()
        how = f"failed:\n{trace}" if trace else self._workers[worker].explain_end()
        return self._fail(f"{self._name(worker)} {how}")

    def _name(self, worker: int) -> str:
        return f"loader worker {worker} of {len(self._workers)} (pid {self._workers[worker].pid})"

    def _fail(self, why: str) -> WorkerError:
        """Kill all workers; return an error with the reason."""
        self._kill(why)
        return WorkerError(why)

    def _kill(self, why: str) -> None:
        if self.is_open:
            self._why_closed = why
            for worker in self._workers:
                worker.kill()
            self._finalizer()
