# SPDX-License-Identifier: Apache-2.0
"""A worker, which builds its parts of batches for all live iterators.

It runs in the consumer's own process (for `InProcessPool`), or in a process of its own (`main`).
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import socket
import sys
import threading
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robostream.assemble import Arrays
from robostream.batches import (
    BadSampleError,
    BatchBuilder,
    Texts,
    WorkerContext,
    preserve_generators,
)
from robostream.decode import COUNTERS
from robostream.device import LESS_MEMORY, ByteArray, map_memory, unpack
from robostream.errors import WorkerError
from robostream.plan import Schedule, WorkerShard, rank_lanes
from robostream.workers.protocol import (
    Assign,
    Begin,
    Built,
    Channel,
    ChannelClosed,
    Crashed,
    End,
    Failed,
    WorkerConfig,
    encode,
)

if TYPE_CHECKING:
    from robostream.device import DeviceBatches

# A worker reports the batches that it builds at once together, unless that takes longer than this.
_REPORT_S = 0.05
# How often a waiting worker checks that its consumer still runs. Usually the channel closes when
# the consumer ends; but a process that the consumer forked may hold the channel open.
_CHECK_S = 1.0
# How long a worker goes on in the middle of a batch when its consumer has ended.
_LAST_S = 2.0


class _LiveIterator:
    """One iterator in a worker.

    Attributes:
        after: The iterator whose batches are built first; None if it takes turns with all others.
        slots: Where to build its next batches.
        num_steps: How many batches it has.
    """

    def __init__(self, context: WorkerContext, schedule: Schedule, after: int | None) -> None:
        self.after = after
        self.slots: deque[int] = deque()
        self.num_steps = schedule.num_steps
        self._context = context
        self._schedule = schedule

    @functools.cached_property
    def builder(self) -> BatchBuilder:
        """What builds its batches; opened when the first one is due."""
        lanes = rank_lanes(self._schedule.cut, self._schedule.plan.lanes)
        return BatchBuilder(self._context, self._schedule, lanes)

    def decode_ahead(self) -> bool:
        """Decode ahead if a batch was built already; return False if there is nothing to decode."""
        builder: BatchBuilder | None = self.__dict__.get("builder")
        return builder is not None and builder.decode_ahead()

    def close(self) -> None:
        """Drop its frames and decoders."""
        builder: BatchBuilder | None = self.__dict__.pop("builder", None)
        if builder is not None:
            builder.close()


class Worker:
    """Builds one worker's parts of batches. For one thread.

    Args:
        worker_config: The settings of all workers.
        shard: Which parts of batches are this worker's.
        batches: The memory to build batches in.
        counters: A row of `decode.COUNTERS` to add to.
        frames: The memory of the decoded frames that all workers share; None if each has its own.
        on_device: The GPU memory for frames that the GPU decodes; None if the CPU decodes.
    """

    def __init__(
        self,
        worker_config: WorkerConfig,
        shard: WorkerShard,
        *,
        batches: ByteArray,
        counters: npt.NDArray[np.float64],
        frames: ByteArray | None,
        on_device: DeviceBatches | None = None,
    ) -> None:
        self._format = worker_config.batches
        self._batches = batches
        self._on_device = on_device
        self._context = WorkerContext(
            worker_config.layout,
            shard,
            worker_config.budgets,
            counters=counters,
            shared_frames=frames,
        )
        self._iterators: OrderedDict[int, _LiveIterator] = OrderedDict()
        # The arrays of batches by (slot, size); making them anew takes longer than a sample's rows.
        self._views: dict[tuple[int, int], Arrays] = {}

    def begin(self, iterator: int, schedule: Schedule, after: int | None) -> None:
        """Begin a new iterator, to be built when nothing is left to build for `after`."""
        self._iterators[iterator] = _LiveIterator(self._context, schedule, after)

    def assign(self, iterator: int, slots: tuple[int, ...]) -> None:
        """Record the slots in which to build the next batches, unless one of them failed."""
        if iterator in self._iterators:
            self._iterators[iterator].slots.extend(slots)

    def end(self, iterator: int) -> None:
        """Close an iterator."""
        if iterator in self._iterators:
            self._iterators.pop(iterator).close()

    def has_work(self) -> bool:
        """Return whether a batch is waiting to be built."""
        return any(live.slots for live in self._iterators.values())

    def work(self) -> Iterator[Built | Failed]:
        """Build this worker's parts of some batches of one iterator; iterators take turns."""
        for iterator, live in self._iterators.items():
            before = None if live.after is None else self._iterators.get(live.after)
            if live.slots and not (before and before.slots):
                self._iterators.move_to_end(iterator)
                yield from self._build(iterator, len(live.slots))
                return

    def decode_ahead(self) -> bool:
        """Decode for batches that have no slot yet; return False if there is none to decode."""
        began = time.perf_counter()
        has_decoded = any(live.decode_ahead() for live in self._iterators.values())
        self._context.count_busy(time.perf_counter() - began)
        return has_decoded

    def build(self, iterator: int) -> Built | Failed:
        """Build the next batch of one iterator, in the consumer's own process."""
        on_device = self._on_device
        transforms = bool(self._context.layout.transforms)
        # The consumer may have another CUDA stream current.
        stream = contextlib.nullcontext() if on_device is None else on_device.on_decoder_stream()
        with stream, preserve_generators(is_needed=transforms):
            (done,) = self._build(iterator, 1)
        return done

    def close(self) -> None:
        """Close all iterators and files."""
        for iterator in list(self._iterators):
            self.end(iterator)
        self._context.close()

    def _view(self, slot: int, size: int) -> Arrays:
        """Return the arrays of a batch in a slot."""
        arrays = self._views.get((slot, size))
        if arrays is None:
            views = self._format.view(self._batches, slot, size)
            if self._on_device is not None:
                views |= self._on_device.view(slot, size)
            arrays = self._views[slot, size] = views
        return arrays

    def _build(self, iterator: int, most: int) -> Iterator[Built | Failed]:
        """Build at most so many batches; yield one message for several: waking up takes time."""
        began = time.perf_counter()
        live = self._iterators[iterator]
        parts = [
            (share, self._view(live.slots.popleft(), share.size))
            for share in live.builder.next_shares(most)
        ]
        assert parts, "an iterator is not asked beyond its end"
        built: dict[int, Texts] = {}
        failed: Failed | None = None
        step, reported = parts[0][0].step, time.perf_counter()
        try:
            for texts in live.builder.fill(parts):
                built[step] = texts
                step += 1
                if time.perf_counter() > reported + _REPORT_S:
                    yield self._report(iterator, built)
                    built, reported = {}, time.perf_counter()
        except BadSampleError as bad:
            self.end(iterator)
            failed = Failed(iterator, step, _explain_memory(bad))
        self._context.count_busy(time.perf_counter() - began)
        if built:
            yield self._report(iterator, built)
        if failed is not None:
            yield failed
        elif step >= live.num_steps:
            live.close()  # before the next epoch opens what it needs

    def _report(self, iterator: int, built: dict[int, Texts]) -> Built:
        if self._on_device is not None:
            self._on_device.settle()
        return Built(iterator, max(built), {step: texts for step, texts in built.items() if texts})


def _explain_memory(bad: BadSampleError) -> BadSampleError:
    """Return a bad sample whose error tells what to do against a lack of memory."""
    if not isinstance(bad.error, MemoryError):
        return bad
    error = WorkerError(f"there is too little memory: {bad.error}. {LESS_MEMORY}")
    error.__cause__ = bad.error
    return BadSampleError(bad.episode, bad.frame, bad.position, error)


def main(fd: int, consumer: int) -> None:
    """Serve the process `consumer` at the other end of a socket until it is gone."""
    channel = Channel(socket.socket(fileno=fd))
    connection = _Connection(channel, consumer)
    with contextlib.suppress(RuntimeError):  # a limit on threads
        threading.Thread(target=_end_with, args=(channel, consumer), daemon=True).start()
    code = 0
    try:
        _serve(connection)
    except ChannelClosed:
        pass
    except BaseException:  # a transform may raise SystemExit or KeyboardInterrupt
        code = 1
        with contextlib.suppress(ChannelClosed):
            connection.send(Crashed(traceback.format_exc()))
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # it may be closed, or None
            output.flush()
    # Skip Python's cleanup: the operating system frees everything faster.
    os._exit(code)


def _end_with(channel: Channel, consumer: int) -> None:
    """End this process when its consumer has ended, also in the middle of a long batch."""
    while os.getppid() == consumer and not channel.is_closed(_CHECK_S):
        pass
    time.sleep(_LAST_S)  # `main` ends it earlier if it can
    os._exit(1)


class _Connection:
    """Messages to and from the consumer; raises ChannelClosed once the consumer has ended."""

    def __init__(self, channel: Channel, consumer: int) -> None:
        self._channel = channel
        self._consumer = consumer

    def is_ready(self, timeout_s: float) -> bool:
        """Return whether a message has come. Blocks up to a timeout."""
        self._check_consumer()
        return self._channel.is_ready(timeout_s)

    def receive(self) -> tuple[Any, list[int]]:
        """Return the next message. Blocks."""
        while True:
            if self.is_ready(_CHECK_S) and (received := self._channel.receive()) is not None:
                return received

    def send(self, message: object) -> None:
        """Send a message. Blocks while the channel is full."""
        payload = encode(message)
        while not self._channel.send(payload):
            self._check_consumer()
            self._channel.has_room(_CHECK_S)

    def _check_consumer(self) -> None:
        if os.getppid() != self._consumer:
            raise ChannelClosed("the consumer is gone")


def _serve(connection: _Connection) -> None:
    worker = _open_worker(connection)
    # Everything loaded so far lives to the end. Frozen, the garbage collector skips it.
    gc.freeze()
    is_idle = False
    while True:
        while connection.is_ready(_CHECK_S if is_idle else 0):
            _handle_message(worker, connection)
            is_idle = False
        for done in worker.work():
            connection.send(done.to_picklable() if isinstance(done, Failed) else done)
        # Waiting for a slot, it is ahead of other workers.
        is_idle = not worker.has_work() and not worker.decode_ahead()


def _open_worker(connection: _Connection) -> Worker:
    shard, fds = connection.receive()
    worker_config: WorkerConfig = unpack(fds[0])
    batches, counters = map_memory(fds[1]), map_memory(fds[2])
    frames = map_memory(fds[3]) if len(fds) > 3 else None
    for fd in fds:
        os.close(fd)
    on_device: DeviceBatches | None = None
    if worker_config.on_device is not None:
        from robostream.device import open_shared  # workers without a GPU start faster

        on_device = open_shared(worker_config.on_device)
    return Worker(
        worker_config,
        shard,
        batches=batches,
        counters=counters.view(np.float64).reshape(-1, len(COUNTERS))[shard.worker],
        frames=frames,
        on_device=on_device,
    )


def _handle_message(worker: Worker, connection: _Connection) -> None:
    message, fds = connection.receive()
    if isinstance(message, Begin):
        schedule = unpack(fds[0])
        os.close(fds[0])
        worker.begin(message.iterator, schedule, message.after)
    elif isinstance(message, Assign):
        worker.assign(message.iterator, message.slots)
    elif isinstance(message, End):
        worker.end(message.iterator)
        connection.send(message)
