# SPDX-License-Identifier: Apache-2.0
"""A crew: the worker processes of one loader, seen from their consumer.

Workers are fresh interpreters, not forks: they hold no lock, no thread and no GPU of the consumer,
and do not run its script again. They end when their end of the channel closes, however the consumer
ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import Any

from robostream.crew.channel import Channel, ChannelClosed
from robostream.crew.messages import Assign, Begin, Built, End, Ended, Failed, Hello
from robostream.crew.shared_memory import pack
from robostream.errors import WorkerError
from robostream.stream import Tour

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from robostream.crew.program import main; main(int(sys.argv[2]))"
)
# A worker has at most one sample to finish before it sees that it is to end.
_END_S = 5.0
# A process that has closed its channel is gone within this time.
_DYING_S = 1.0

Texts = dict[str, dict[int, Any]]


class Crew:
    """The worker processes of a loader. For one thread of the process that made it.

    Args:
        num_workers: How many processes.
        fds: Descriptors of the packed recipe, the batches, the counters and, if they are kept for
            all, the decoded pictures.
    """

    def __init__(self, num_workers: int, fds: list[int]) -> None:
        self._process = os.getpid()
        self._workers: list[subprocess.Popen[bytes]] = []
        self._channels: list[Channel] = []
        self._finalizer = weakref.finalize(self, _end, self._process, self._workers, self._channels)
        for worker in range(num_workers):
            self._start(worker, num_workers, fds)
        self._next_tour = 0
        self._built: dict[int, dict[int, tuple[int, Texts]]] = {}
        self._failed: dict[int, Failed] = {}
        # Iterators that were ended, with the workers that have not said yet that they know.
        self._ending: dict[int, tuple[int, Callable[[], None]]] = {}

    @property
    def is_usable(self) -> bool:
        """Whether this process may use it: it made it, and it was not closed."""
        return self._finalizer.alive and self._process == os.getpid()

    @property
    def pids(self) -> list[int]:
        """The process numbers of the workers."""
        return [worker.pid for worker in self._workers]

    def begin(self, tour: Tour) -> int:
        """Tell all workers of a new iterator; return its number."""
        number = self._next_tour
        self._next_tour += 1
        self._built[number] = {}
        plan = pack(tour.plan)
        try:
            self._tell(Begin(number, tour.cut, tour.start), [plan])
        finally:
            os.close(plan)
        return number

    def assign(self, tour: int, step: int, slot: int) -> None:
        """Let the workers build a batch in a slot."""
        self._tell(Assign(tour, step, slot))

    def end(self, tour: int, on_idle: Callable[[], None]) -> None:
        """Let the workers forget an iterator; `on_idle` is called once none writes to its slots."""
        if self._built.pop(tour, None) is None:
            return
        self._failed.pop(tour, None)
        if self.is_usable:
            self._ending[tour] = len(self._workers), on_idle
            with contextlib.suppress(WorkerError):
                self._tell(End(tour))

    def settle(self) -> None:
        """Wait until no worker writes for an iterator that was ended. Blocks."""
        while self._ending:
            self._listen(None)

    def wait(self, tour: int, step: int, timeout_s: float) -> Texts | Failed | None:
        """Return a batch's texts once all workers have built it. Blocks.

        Returns what went wrong if a worker could not build it or an earlier one, and None if the
        time is over (0 waits for ever).
        """
        until = time.monotonic() + timeout_s if timeout_s else None
        built = self._built[tour]
        while True:
            count, texts = built.get(step, (0, {}))
            if count == len(self._workers):
                del built[step]
                return texts
            failed = self._failed.get(tour)
            if failed is not None and failed.step <= step:
                return failed
            left = None if until is None else max(0.0, until - time.monotonic())
            if not self._listen(left):
                return None

    def close(self) -> None:
        """End all workers. Blocks until they are gone."""
        self._finalizer()

    def _start(self, worker: int, num_workers: int, fds: list[int]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            arguments = [json.dumps(sys.path), str(theirs.fileno())]
            # A thread pool of each numeric library in each worker would fight over the cores.
            quiet = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
            process = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | quiet,
            )
        self._workers.append(process)
        self._channels.append(Channel(ours))
        try:
            self._channels[-1].send(Hello(worker, num_workers), fds)
        except ChannelClosed as error:
            raise self._death(worker) from error

    def _tell(self, message: object, fds: list[int] | None = None) -> None:
        for worker, channel in enumerate(self._channels):
            try:
                channel.send(message, fds or ())
            except ChannelClosed as error:
                raise self._death(worker) from error

    def _listen(self, timeout_s: float | None) -> bool:
        """Take the messages that are there, at least one; return False if the time is over."""
        ready = wait([channel.fileno() for channel in self._channels], timeout_s)
        for channel in [c for c in self._channels if c.fileno() in ready]:
            try:
                message, _ = channel.receive()
            except ChannelClosed as error:
                raise self._death(self._channels.index(channel)) from error
            self._note(message)
        return bool(ready)

    def _note(self, message: Any) -> None:
        tour = message.tour
        if isinstance(message, Ended) and tour in self._ending:
            missing, on_idle = self._ending.pop(tour)
            if missing > 1:
                self._ending[tour] = missing - 1, on_idle
            else:
                on_idle()
        elif isinstance(message, Built) and tour in self._built:
            count, texts = self._built[tour].get(message.step, (0, {}))
            for key, values in message.texts.items():
                texts.setdefault(key, {}).update(values)
            self._built[tour][message.step] = count + 1, texts
        elif isinstance(message, Failed) and tour in self._built:
            known = self._failed.get(tour)
            if known is None or message.step < known.step:
                self._failed[tour] = message

    def _death(self, worker: int) -> WorkerError:
        process = self._workers[worker]
        try:
            code = process.wait(_DYING_S)
        except subprocess.TimeoutExpired:
            code = 0
        self.close()
        if code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by signal {-code} ({name})"
            cure = "Out of memory? Then lower frame_cache_bytes, num_workers or prefetch_factor."
        else:
            how = f"ended with exit code {code}"
            cure = "What it printed says why."
        return WorkerError(
            f"loader worker {worker} of {len(self._workers)} (pid {process.pid}) {how}. {cure}"
        )


def _end(process: int, workers: list[subprocess.Popen[bytes]], channels: list[Channel]) -> None:
    """Close all channels; in the process that started the workers, see that they are gone."""
    for channel in channels:
        channel.close()
    if process != os.getpid():
        for worker in workers:
            worker.returncode = 0  # another process's child: not ours to wait for
        return
    until = time.monotonic() + _END_S
    for worker in workers:
        try:
            worker.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()
