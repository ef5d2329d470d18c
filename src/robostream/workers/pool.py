# SPDX-License-Identifier: Apache-2.0
"""A crew: the worker processes of one loader, as the consumer uses them.

Workers are fresh interpreters, not forks: they inherit no lock, thread or GPU of the consumer, and
do not run its script again. A worker ends when the consumer's end of its channel is closed, and so
in whatever way the consumer ends.
"""

from __future__ import annotations

import contextlib
import io
import math
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from robostream.batches import Texts
from robostream.device import pack
from robostream.errors import WorkerError
from robostream.plan import Schedule
from robostream.workers.channel import Channel, ChannelClosed, encode
from robostream.workers.messages import (
    Assign,
    Begin,
    Built,
    Crashed,
    End,
    Ended,
    Failed,
    WorkerIdentity,
)
from robostream.workers.start import end_workers, signals_held, start_worker
from robostream.workers.turns import Turns

CLOSED = "the workers of this iterator were ended with loader.close(); call iter(loader) again"
_INTERRUPTED = (
    "the workers of this iterator were ended, because an interrupt came while a message was sent "
    "to them; call iter(loader) again"
)
_OUT_OF_MEMORY = "Out of memory? Then lower frame_cache_bytes, num_workers or prefetch_factor."
# A worker that has closed its channel has ended within this time.
_DYING_S = 0.5
# A worker whose channel is full may itself be waiting for the consumer to take a message. So the
# consumer does that for so long, and then tries again to send.
_RETRY_S = 0.01


@dataclass(slots=True)
class _Progress:
    """How far the workers are with the batches of one iterator.

    Attributes:
        timeout_s: How long the consumer waits for a worker; 0 for ever.
        reached: How many batches each worker has built.
        texts: By step, the texts of batches that are not delivered yet.
        failed: The first batch that cannot be built, and why.
    """

    timeout_s: float
    reached: list[int]
    texts: dict[int, Texts] = field(default_factory=dict)
    failed: Failed | None = None

    def note(self, worker: int, message: Built | Failed) -> None:
        """Note what a worker says of batches."""
        if isinstance(message, Failed):
            if self.failed is None or message.step < self.failed.step:
                self.failed = message
            return
        self.reached[worker] = message.step + 1
        for step, own in message.texts.items():
            texts = self.texts.setdefault(step, {})
            for key, values in own.items():
                texts.setdefault(key, {}).update(values)


def _until(timeout_s: float) -> float:
    """Return when a timeout that begins now is over; 0 stands for never."""
    return time.monotonic() + timeout_s if timeout_s else math.inf


def park_at_shutdown() -> None:
    """Keep a daemon thread from going on when all others have ended, the main one too.

    The interpreter is ending then: it has ended workers and closed their memory, and will end this
    thread too, so no error should be raised in it.
    """
    while not any(thread.is_alive() and not thread.daemon for thread in threading.enumerate()):
        time.sleep(1)


class WorkerPool:
    """The worker processes of a loader, for the process that made it. Threads take turns.

    Args:
        num_workers: How many processes.
        fds: Descriptors of the packed recipe, the batches, the counters and, if all workers share
            them, the decoded pictures.
    """

    def __init__(self, num_workers: int, fds: list[int]) -> None:
        self._workers: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._turns = Turns()
        self._why_closed = CLOSED
        self._finalizer = weakref.finalize(
            self, end_workers, os.getpid(), self._workers, self._channels
        )
        self._next_tour = 0
        # For each live iterator.
        self._progress: dict[int, _Progress] = {}
        # For each iterator that was ended: the workers that have not confirmed it yet, and what to
        # call when all have.
        self._ending: dict[int, tuple[set[int], Callable[[], None]]] = {}
        with signals_held(), self._whole():
            for worker in range(num_workers):
                channel, process = start_worker()
                self._channels.append(channel)
                self._workers.append(process)
                self._send(worker, encode(WorkerIdentity(worker, num_workers)), fds, math.inf)

    @property
    def is_usable(self) -> bool:
        """Whether this process made it and nobody has closed it."""
        return self._finalizer.alive and self._turns.is_own_process

    @property
    def pids(self) -> list[int]:
        """The process numbers of the workers."""
        return [worker.pid for worker in self._workers]

    def begin(self, tour: Schedule, timeout_s: float) -> int:
        """Tell all workers of a new iterator; return its number.

        A worker that keeps the consumer waiting for longer than `timeout_s` (0 for ever), for a
        batch or because its channel is full, is a WorkerError, and all workers are ended.
        """
        with signals_held():
            plan = io.FileIO(pack(tour.plan))
        with plan, self._turns.turn(self._end), self._whole():
            number = self._next_tour
            self._next_tour += 1
            self._progress[number] = _Progress(timeout_s, [0] * len(self._workers))
            self._tell(Begin(number, tour.cut, tour.start), timeout_s, [plan.fileno()])
        return number

    def assign(self, tour: int, step: int, slots: tuple[int, ...]) -> None:
        """Let the workers build the batches from `step` on, one in each slot."""
        with self._turns.turn(self._end), self._whole():
            self._tell(Assign(tour, step, slots), self._progress[tour].timeout_s)

    def end(self, tour: int, on_idle: Callable[[], None]) -> None:
        """Let the workers close an iterator; `on_idle` is called once none writes to its slots.

        Any thread may call this at any moment, the garbage collector too.
        """
        self._turns.end(tour, on_idle, self._end)

    def settle(self, timeout_s: float) -> None:
        """Wait until no worker writes for an iterator that was ended. Blocks."""
        until = _until(timeout_s)
        with self._turns.turn(self._end):
            while self._ending:
                if not self._listen(until):
                    missing, _ = next(iter(self._ending.values()))
                    raise self._late(min(missing), timeout_s)

    def wait(self, tour: int, step: int) -> Texts | Failed:
        """Return a batch's texts once all workers have built it. Blocks.

        Returns a `Failed` if a worker could not build it or an earlier one.
        """
        timeout_s = self._progress[tour].timeout_s
        until = _until(timeout_s)
        with self._turns.turn(self._end):
            while (worker := self._who_lags(tour, step)) is not None:
                failed = self._progress[tour].failed
                if failed is not None and failed.step <= step:
                    return failed
                if self._take(worker):
                    continue
                # Waking up for every worker's message would take time from the workers.
                if not self._listen(until, worker):
                    raise self._late(worker, timeout_s)
            return self._progress[tour].texts.pop(step, {})

    def is_built(self, tour: int, step: int) -> bool:
        """Return whether a batch is known to be built; waits neither for workers nor threads."""
        with self._turns.turn_if_free() as has_turn:
            while has_turn and (worker := self._who_lags(tour, step)) is not None:
                if not self._take(worker):
                    return False
            return has_turn

    def check(self) -> None:
        """Raise WorkerError if the workers were ended, or this process is a fork."""
        self._turns.check_process()
        self._check()

    def close(self) -> None:
        """End all workers. Blocks until they have ended."""
        self._finalizer()

    def _end(self, tour: int, on_idle: Callable[[], None]) -> None:
        progress = self._progress.pop(tour, None)
        if progress is not None and self._finalizer.alive:
            self._ending[tour] = set(range(len(self._workers))), on_idle
            with contextlib.suppress(WorkerError), self._whole():
                self._tell(End(tour), progress.timeout_s)

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        """Close the crew if the block raises: some workers may have got a message, others not.

        An interrupt hardly ever comes in such a block; mostly it comes while the consumer waits.
        """
        self._check()
        try:
            yield
        except BaseException:
            self._close(_INTERRUPTED)
            raise

    def _tell(self, message: object, timeout_s: float, fds: Sequence[int] = ()) -> None:
        payload, until = encode(message), _until(timeout_s)
        for worker in range(len(self._channels)):
            if not self._send(worker, payload, fds, until):
                raise self._late(worker, timeout_s)

    def _send(self, worker: int, payload: bytes, fds: Sequence[int], until: float) -> bool:
        """Send a message; return False if the channel has no room until then."""
        try:
            while not self._channels[worker].send(payload, fds):
                if time.monotonic() > until:
                    return False
                self._listen(time.monotonic() + _RETRY_S)
        except ChannelClosed as error:
            raise self._death(worker) from error
        return True

    def _who_lags(self, tour: int, step: int) -> int | None:
        """Return the first worker that has not built its part of a batch; None if all have."""
        for worker, reached in enumerate(self._progress[tour].reached):
            if reached <= step:
                return worker
        return None

    def _late(self, worker: int, timeout_s: float) -> WorkerError:
        return self._stop(
            f"no batch came within timeout={timeout_s} s: {self._name(worker)} is still at work or "
            "stuck. All workers were ended; the next iter(loader) starts new ones. Raise the "
            "timeout, or find out what the worker waits for."
        )

    def _listen(self, until: float, worker: int | None = None) -> bool:
        """Wait for messages and take those that have come; return False if none came in time.

        With a worker, wait for a message of its own, or for the end of any of them.
        """
        self._check()
        poll = select.poll()
        for number, channel in enumerate(self._channels):
            # An end is always reported.
            poll.register(channel.fileno(), select.POLLIN if worker in (None, number) else 0)
        left = until - time.monotonic()
        ready = poll.poll(None if left == math.inf else max(0.0, left) * 1000)
        found = {fd for fd, _ in ready}
        for number, channel in enumerate(self._channels):
            if channel.fileno() in found:
                self._take(number)
        return bool(ready)

    def _take(self, worker: int) -> bool:
        """Take a message of a worker; return False if none has come."""
        with self._whole():
            try:
                received = self._channels[worker].receive()
            except ChannelClosed as error:
                raise self._death(worker) from error
            if received is None:
                return False
            message, _ = received
            if isinstance(message, Crashed):
                raise self._stop(f"{self._name(worker)} failed:\n{message.trace}")
            self._note(worker, message)
            return True

    def _note(self, worker: int, message: Any) -> None:
        tour = message.tour
        if isinstance(message, Ended) and tour in self._ending:
            missing, on_idle = self._ending[tour]
            missing.discard(worker)
            if not missing:
                del self._ending[tour]
                on_idle()
        elif isinstance(message, Built | Failed) and tour in self._progress:
            self._progress[tour].note(worker, message)

    def _check(self) -> None:
        if not self._finalizer.alive:
            raise self._closed()

    def _closed(self) -> WorkerError:
        park_at_shutdown()
        return WorkerError(self._why_closed)

    def _death(self, worker: int) -> WorkerError:
        if not self._finalizer.alive:
            return self._closed()
        trace = self._sent_trace(self._channels[worker])
        if trace is not None:
            return self._stop(f"{self._name(worker)} failed:\n{trace}")
        try:
            code = self._workers[worker].wait(_DYING_S)
        except subprocess.TimeoutExpired:
            return self._stop(f"{self._name(worker)} closed its channel but has not ended")
        if code == 0 and signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
            return self._stop(
                f"{self._name(worker)} has ended. The system does not say how to a program that "
                "ignores SIGCHLD; signal.signal(signal.SIGCHLD, signal.SIG_DFL) changes that. "
                + _OUT_OF_MEMORY
            )
        if code >= 0:
            return self._stop(
                f"{self._name(worker)} ended with exit code {code}. Look at what it printed."
            )
        names = {number.value: number.name for number in signal.Signals}
        return self._stop(
            f"{self._name(worker)} was killed by signal {-code} ({names.get(-code, 'unnamed')}). "
            + _OUT_OF_MEMORY
        )

    @staticmethod
    def _sent_trace(channel: Channel) -> str | None:
        """Return the traceback that a worker sent before it ended, if it sent one."""
        failures = 0
        # The first failure may only mean that the worker left messages of ours unread. Messages
        # that it sent can be read after it.
        while failures < 2:
            try:
                received = channel.receive()
            except ChannelClosed:
                failures += 1
                continue
            if received is None:
                return None
            message, _ = received
            if isinstance(message, Crashed):
                return message.trace
        return None

    def _name(self, worker: int) -> str:
        return f"loader worker {worker} of {len(self._workers)} (pid {self._workers[worker].pid})"

    def _stop(self, why: str) -> WorkerError:
        """Kill all workers; return the error that says why."""
        self._close(why)
        return WorkerError(why)

    def _close(self, why: str) -> None:
        if self._finalizer.alive:
            self._why_closed = why
            for worker in self._workers:
                worker.kill()
            self._finalizer()
