# SPDX-License-Identifier: Apache-2.0
"""Single samples, built in this process: iterating over a stream, here or in a plain DataLoader.

Each worker of a plain DataLoader builds all samples of some lanes, so that no two workers decode
the same frames.
"""

from __future__ import annotations

import dataclasses
import functools
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch
from torch.utils.data import get_worker_info

from robostream.batches import BadSampleError, BatchBuilder, WorkerContext, preserve_generators
from robostream.errors import StateError
from robostream.loader.cursor import StreamCursor
from robostream.loader.options import refuse_copy
from robostream.loader.position import EpochKey
from robostream.plan import Cursor, Cut, EpochPlan, Schedule, ScheduledStep, rank_lanes

# The keys that the state of an iterator adds to the state of the order.
_OWN = ("world_size", "worker", "delivered")


@dataclass(frozen=True)  # without slots, which cached properties do not work with
class SampleShare:
    """The samples of a rank from `start` on that one of several processes delivers, in order.

    Attributes:
        plan: The order of the epoch.
        cut: The rank, with a batch of one sample.
        start: The position at which the rank begins.
        worker: Which of the processes.
        num_workers: How many processes share the rank's lanes.
    """

    plan: EpochPlan
    cut: Cut
    start: int
    worker: int
    num_workers: int

    @functools.cached_property
    def lanes(self) -> list[int]:
        """The lanes of this process."""
        return list(rank_lanes(self.cut, self.plan.lanes))[self.worker :: self.num_workers]

    @functools.cached_property
    def period(self) -> int:
        """The number of steps in which the rank takes one sample from each of its lanes."""
        return len(rank_lanes(self.cut, self.plan.lanes))

    @functools.cached_property
    def steps(self) -> list[int]:
        """The steps of this process in each period, counted from `start`."""
        lanes = set(self.lanes)
        first = self.start + (self.cut.rank - self.start) % self.cut.world_size
        world_size, num_lanes = self.cut.world_size, self.plan.lanes
        return [s for s in range(self.period) if (first + s * world_size) % num_lanes in lanes]

    def __len__(self) -> int:
        total = Schedule(self.plan, self.cut, self.start).num_steps
        rounds, rest = divmod(total, self.period)
        return rounds * len(self.steps) + sum(step < rest for step in self.steps)

    def step(self, sample: int) -> int:
        """Return the step of the rank, counted from `start`, of this process's sample. Pure."""
        rounds, number = divmod(sample, len(self.steps))
        return rounds * self.period + self.steps[number]


def skip_batches(share: SampleShare, batches: int, batch_size: int) -> tuple[SampleShare, int]:
    """Return the share a worker continues with after `batches` batches, and its samples to skip.

    The batches are those of a plain DataLoader since epoch 0. It takes one batch from each worker
    in turn. At the end of its share, a worker makes a short batch of the rest; after that the
    DataLoader skips it. A new DataLoader asks its first worker first, whoever's turn it was when
    the old one stopped. So a worker may continue with another worker's share. Pure.
    """
    if batches == 0:
        return share, 0
    workers = range(share.num_workers)
    counts = [len(dataclasses.replace(share, worker=worker)) for worker in workers]
    per_worker = [-(-count // batch_size) for count in counts]
    epochs, left = divmod(batches, sum(per_worker))
    taken, following = _deal(per_worker, left)
    worker = (following + share.worker) % share.num_workers
    plan = share.plan.replace(epoch=share.plan.epoch + epochs)
    own = dataclasses.replace(share, plan=plan, worker=worker)
    return own, min(taken[worker] * batch_size, counts[worker])


def _deal(per_worker: list[int], left: int) -> tuple[list[int], int]:
    """Return the batches taken from each worker, and whose turn is next."""
    # Whole rounds take one batch from each worker that has one left.
    rounds = bisect_right(
        range(max(per_worker)), left, key=lambda n: sum(min(n + 1, count) for count in per_worker)
    )
    taken = [min(rounds, count) for count in per_worker]
    turn = 0
    having = [worker for worker, count in enumerate(per_worker) if count > rounds]
    for worker in having[: left - sum(taken)]:
        taken[worker] += 1
        turn = (worker + 1) % len(per_worker)
    return taken, turn


def iterate_samples(
    stream: StreamCursor, open_context: Callable[[int], WorkerContext]
) -> SampleIterator:
    """Return a new iterator over a stream, in the main process or a plain DataLoader's worker.

    `open_context` takes the number of processes that iterate and returns this one's context.
    """
    info, position = get_worker_info(), stream.position
    worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
    version, start = position.version, position.next_start()
    cut = stream.cut
    share = SampleShare(stream.plan(start.epoch), cut, start.position, worker, num_workers)
    skipped = 0
    if position.is_pending and position.batches_taken is not None:
        share, skipped = skip_batches(share, *position.batches_taken)
    first = share.plan.epoch
    base_seed = None if info is None else info.seed - info.id
    epoch, key = stream.epochs.begin(version, first, base_seed)
    if epoch != first:
        share, skipped = SampleShare(stream.plan(epoch), cut, 0, worker, num_workers), 0
    return SampleIterator(share, skipped, open_context(num_workers), stream, version, key)


class SampleIterator:
    """Yields one process's samples of an epoch, without those that were skipped.

    Resumes from its own state, which torchdata's StatefulDataLoader saves and restores worker by
    worker. `version` is that of the stream's position when the iterator began; `key` is its key in
    the table of epochs, None in the main process.
    """

    def __init__(
        self,
        share: SampleShare,
        skipped: int,
        context: WorkerContext,
        stream: StreamCursor,
        version: int,
        key: EpochKey | None,
    ) -> None:
        self._share = share
        self._delivered = skipped
        self._context = context
        self._stream = stream
        self._version = version
        self._key = key
        self._samples: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> SampleIterator:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._samples is None:
            self._samples = self._build()
        sample = next(self._samples)
        self._delivered += 1
        if self._key is None:
            self._stream.position.deliver(self._cursor(), self._version)
        return sample

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def state_dict(self) -> dict[str, Any]:
        """Return the order, where in it the iteration began, and how many samples it delivered."""
        share = self._share
        order = self._stream.capture(share.plan, share.start)
        own = share.cut.world_size, [share.worker, share.num_workers], self._delivered
        return order | dict(zip(_OWN, own, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where a state stands; raise StateError if it is of another order or split."""
        if missing := [key for key in ("fingerprint", *_OWN) if key not in state]:
            raise StateError(
                f"this state of torchdata's StatefulDataLoader has no {', '.join(missing)}, so it "
                "cannot be checked against this dataset and its order. It was saved by an earlier "
                "version of robostream: resume with that version, or start afresh."
            )
        cursor = self._stream.restore({k: v for k, v in state.items() if k not in _OWN})
        plan, cut = self._stream.current_plan(cursor.epoch), self._share.cut
        world_size, (worker, num_workers) = state["world_size"], state["worker"]
        if (world_size, num_workers) != (cut.world_size, self._share.num_workers):
            raise StateError(
                f"the state was saved with world_size={world_size} and {num_workers} reading "
                f"processes per rank, but here they are {cut.world_size} and "
                f"{self._share.num_workers}. A StatefulDataLoader resumes only with as many as it "
                "was saved with; a StreamingDataLoader resumes with any number."
            )
        self._share = SampleShare(plan, cut, cursor.position, worker, num_workers)
        self._delivered = state["delivered"]
        self.close()
        self._stream.epochs.move(self._key, plan.epoch)

    def close(self) -> None:
        """Close what is open for the next samples."""
        if self._samples is not None:
            self._samples.close()  # type: ignore[attr-defined]  # a generator
            self._samples = None

    def _cursor(self) -> Cursor:
        """Return the next position of all ranks; right only if this is the rank's one process."""
        share = self._share
        if self._delivered >= len(share):
            return Cursor(share.plan.epoch + 1, 0)
        return Cursor(share.plan.epoch, share.start + self._delivered * share.cut.world_size)

    def _build(self) -> Iterator[dict[str, Any]]:
        bad_episodes = self._stream.bad_episodes
        while self._delivered < len(self._share):
            plan = bad_episodes.plan_of(self._share.plan)
            share = self._share = dataclasses.replace(self._share, plan=plan)
            try:
                yield from self._deliver(share, share.step(self._delivered))
            except BadSampleError as bad:
                bad_episodes.handle(bad, plan)

    def _deliver(self, share: SampleShare, begin: int) -> Iterator[dict[str, Any]]:
        start = share.start + begin * share.cut.world_size
        schedule = Schedule(share.plan, share.cut, start)
        builder, own = BatchBuilder(self._context, schedule, share.lanes), set(share.steps)
        try:
            while (step := builder.next_share()) is not None:
                if (begin + step.step) % share.period in own:
                    yield self._build_sample(builder, step)
        finally:
            builder.close()

    def _build_sample(self, builder: BatchBuilder, step: ScheduledStep) -> dict[str, Any]:
        layout = self._context.layout
        arrays = {k: np.empty((1, *shape), dtype) for k, (shape, dtype) in layout.arrays.items()}
        with preserve_generators(is_needed=bool(layout.transforms)):
            (texts,) = builder.fill([(step, arrays)])
        sample: dict[str, Any] = {key: torch.from_numpy(a)[0] for key, a in arrays.items()}
        return sample | {key: texts[key][0] for key in layout.texts}
