# SPDX-License-Identifier: Apache-2.0
"""One worker's work for all live iterators: it is assigned batches, builds and reports them."""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import time
import traceback
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from robostream.assemble import Arrays
from robostream.batches import (
    BadSampleError,
    BatchBuilder,
    SharedFrameCache,
    Texts,
    WorkerContext,
    kept_generators,
)
from robostream.device import LESS_MEMORY, ByteArray, DeviceBatches
from robostream.errors import WorkerError
from robostream.plan import EpochPlan, Schedule, ScheduledStep, WorkerShard, rank_lanes
from robostream.workers.channel import encode
from robostream.workers.messages import Assign, Begin, Built, Failed, WorkerConfig, WorkerIdentity

# A worker decodes for several batches at once, until its parts of them have so many pictures.
_PICTURES_AT_A_TIME = 32
# They are reported together, unless writing them takes longer than this.
_REPORT_S = 0.05


@dataclass(slots=True)
class _Live:
    """An iterator that this worker builds batches for.

    Attributes:
        delivery: Builds its batches, in order.
        slots: By step, the slot of each batch that is assigned and not built yet.
        share: What to do for the next batch; None after the last.
    """

    delivery: BatchBuilder
    slots: dict[int, int] = field(default_factory=dict)
    share: ScheduledStep | None = None


class WorkerLoop:
    """Builds one worker's parts of batches. For one thread.

    Args:
        recipe: What all workers are told.
        hello: Which of them this is.
        batches: The memory that batches are built in.
        counters: A row of `decode.COUNTERS` to add to.
        kept: The memory of the decoded pictures that all workers share, if they do.
        on_device: Pictures of batches in the memory of a GPU, if it decodes them.
    """

    def __init__(
        self,
        recipe: WorkerConfig,
        hello: WorkerIdentity,
        *,
        batches: ByteArray,
        counters: npt.NDArray[np.float64],
        kept: ByteArray | None,
        on_device: DeviceBatches | None = None,
    ) -> None:
        cameras = len(recipe.layout.cameras)
        shelf = None
        if kept is not None and recipe.shared is not None:
            shelf = SharedFrameCache(kept, recipe.shared)
        self._format = recipe.batches
        self._batches = batches
        self._on_device = on_device
        self._worker = WorkerContext(
            recipe.layout,
            WorkerShard(hello.worker, hello.num_workers, cameras),
            recipe.budgets,
            counters=counters,
            shelf=shelf,
        )
        self._live: OrderedDict[int, _Live] = OrderedDict()

    def begin(self, message: Begin, plan: EpochPlan) -> None:
        """Begin a new iterator."""
        tour = Schedule(plan, message.cut, message.start)
        lanes = rank_lanes(message.cut, plan.lanes)
        live = self._live[message.tour] = _Live(BatchBuilder(self._worker, tour, lanes))
        live.share = live.delivery.next_share()

    def assign(self, message: Assign) -> None:
        """Note where batches are to be built."""
        live = self._live.get(message.tour)
        if live is not None:
            live.slots.update(enumerate(message.slots, message.step))

    def end(self, tour: int) -> None:
        """Close an iterator."""
        live = self._live.pop(tour, None)
        if live is not None:
            live.delivery.close()

    def has_work(self) -> bool:
        """Return whether a batch is waiting to be built."""
        return any(
            live.share is not None and live.share.step in live.slots for live in self._live.values()
        )

    def work(self) -> Iterator[Built | Failed]:
        """Build this worker's parts of some batches; iterators with batches to build take turns."""
        for tour, live in self._live.items():
            if live.share is not None and live.share.step in live.slots:
                self._live.move_to_end(tour)
                yield from self._build(tour, self._next_parts(live, _PICTURES_AT_A_TIME))
                return

    def build(self, tour: int) -> Built | Failed:
        """Build this worker's parts of the next batch of one iterator; for the consumer itself."""
        on_device = self._on_device
        transform = self._worker.layout.spec.image_transforms
        # The consumer, whose process this is, may be inside a block with another stream.
        beside = contextlib.nullcontext() if on_device is None else on_device.beside_decoders()
        with beside, kept_generators(transform):
            (done,) = self._build(tour, self._next_parts(self._live[tour], 1))
        return done

    def close(self) -> None:
        """Close all iterators and files."""
        for tour in list(self._live):
            self.end(tour)
        self._worker.close()

    def _next_parts(self, live: _Live, pictures: int) -> list[tuple[ScheduledStep, Arrays]]:
        """Return the next parts to build, and where; no more than have so many pictures."""
        parts: list[tuple[ScheduledStep, Arrays]] = []
        found = 0
        while found < pictures and live.share is not None and live.share.step in live.slots:
            share, slot = live.share, live.slots.pop(live.share.step)
            arrays = self._format.view(self._batches, slot, share.size)
            if self._on_device is not None:
                arrays |= self._on_device.view(slot, share.size)
            parts.append((share, arrays))
            found += max(1, live.delivery.count_pictures(share))
            live.share = live.delivery.next_share()
        assert parts, "an iterator is not asked beyond its end"
        return parts

    def _build(
        self, tour: int, parts: list[tuple[ScheduledStep, Arrays]]
    ) -> Iterator[Built | Failed]:
        """Yield one message for several batches: to send one, and to be woken up, takes time."""
        built: dict[int, Texts] = {}
        failed: Failed | None = None
        step, reported = parts[0][0].step, time.perf_counter()
        try:
            for texts in self._live[tour].delivery.fill(parts):
                built[step] = texts
                step += 1
                if time.perf_counter() > reported + _REPORT_S:
                    yield self._report(tour, built)
                    built, reported = {}, time.perf_counter()
        except BadSampleError as bad:
            self.end(tour)
            cause = bad.__cause__
            assert isinstance(cause, Exception)
            if isinstance(cause, MemoryError):
                error = WorkerError(f"there is too little memory: {cause}. {LESS_MEMORY}")
                error.__cause__, cause = cause, error
            failed = Failed(tour, step, bad.episode, bad.frame, bad.position, error=cause, trace="")
        if built:
            yield self._report(tour, built)
        if failed is not None:
            yield failed

    def _report(self, tour: int, built: dict[int, Texts]) -> Built:
        if self._on_device is not None:
            self._on_device.settle()
        return Built(tour, max(built), {step: texts for step, texts in built.items() if texts})


def portable(failed: Failed) -> Failed:
    """Return a failure that can be pickled: with its error, or with the text of one that cannot."""
    error = failed.error
    trace = "".join(traceback.format_exception(error))
    error.__cause__ = error.__context__ = error.__traceback__ = None
    try:
        copy = pickle.loads(encode(error))
        is_whole = type(copy).__name__ == type(error).__name__ and copy.args == error.args
    except Exception:  # a user's class may do anything here
        is_whole = False
    if not is_whole:
        error = RuntimeError(f"{type(error).__name__}: {error}")
    return dataclasses.replace(failed, error=error, trace=trace)
