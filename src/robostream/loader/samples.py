# SPDX-License-Identifier: Apache-2.0
"""Single samples, built in this process: for direct iteration and for plain loaders' workers.

Each worker of a plain DataLoader builds all samples of some lanes, so that no two workers decode
the same pictures.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch

from robostream.batches import BadSampleError, BatchBuilder, WorkerContext, kept_generators
from robostream.errors import StateError
from robostream.loader.bad_episodes import BadEpisodes
from robostream.loader.options import refuse_copy
from robostream.plan import Cursor, Cut, EpochPlan, Schedule, capture_state, rank_lanes
from robostream.workers import Failed

# What the state of an iterator has beside the state of the order.
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

    def __len__(self) -> int:
        total = Schedule(self.plan, self.cut, self.start).num_steps
        turns, rest = divmod(total, self._period)
        return turns * len(self._own) + sum(step < rest for step in self._own)

    def step(self, sample: int) -> int:
        """Return which step of the rank, counted from `start`, is sample `sample` here. Pure."""
        turns, place = divmod(sample, len(self._own))
        return turns * self._period + self._own[place]

    @functools.cached_property
    def _period(self) -> int:
        # In so many steps, the rank takes one sample from each of its lanes.
        return len(rank_lanes(self.cut, self.plan.lanes))

    @functools.cached_property
    def _own(self) -> list[int]:
        tour, ours = Schedule(self.plan, self.cut, self.start), set(self.lanes)
        first = tour.start + (self.cut.rank - tour.start) % self.cut.world_size
        steps = range(self._period)
        return [s for s in steps if (first + s * self.cut.world_size) % self.plan.lanes in ours]


class SampleIterator:
    """Yields one process's samples of an epoch; its state says where, so that it can go on there.

    torchdata's StatefulDataLoader saves and restores that state worker by worker.

    Args:
        share: Which samples.
        skipped: How many of them, from the first on, were delivered before.
        worker: What this process holds open.
        bad_episodes: The episodes set aside, and what to do with one more.
        check_state: Returns the plan and the position of a state; raises StateError if the state is
            of another order.
        on_deliver: Called with this iterator after each sample.
        on_move: Called with the epoch of a state when one is loaded.
    """

    def __init__(
        self,
        share: SampleShare,
        *,
        skipped: int,
        worker: WorkerContext,
        bad_episodes: BadEpisodes,
        check_state: Callable[[Mapping[str, Any]], tuple[EpochPlan, int]],
        on_deliver: Callable[[SampleIterator], None],
        on_move: Callable[[int], None],
    ) -> None:
        self.share = share
        self.delivered = skipped
        self._worker = worker
        self._bad_episodes = bad_episodes
        self._check_state = check_state
        self._on_deliver = on_deliver
        self._on_move = on_move
        self._samples: Iterator[dict[str, Any]] | None = None

    def __iter__(self) -> SampleIterator:
        return self

    def __next__(self) -> dict[str, Any]:
        if self._samples is None:
            self._samples = self._build()
        sample = next(self._samples)
        self.delivered += 1
        self._on_deliver(self)
        return sample

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        refuse_copy()

    def cursor(self) -> Cursor:
        """Return the next position of all ranks; right only if this is the rank's one process."""
        share = self.share
        if self.delivered >= len(share):
            return Cursor(share.plan.epoch + 1, 0)
        position = share.start + self.delivered * share.cut.world_size
        return Cursor(share.plan.epoch, position)

    def state_dict(self) -> dict[str, Any]:
        """Return the order, where in it the iteration began, and how many samples it delivered."""
        share = self.share
        fingerprint = self._worker.layout.dataset.meta.fingerprint
        order = capture_state(share.plan, share.start, fingerprint=fingerprint)
        own = share.cut.world_size, [share.worker, share.num_workers], self.delivered
        return order.to_dict() | dict(zip(_OWN, own, strict=True))

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a state stands; raise StateError if it is of another order or split."""
        if missing := [key for key in ("fingerprint", *_OWN) if key not in state]:
            raise StateError(
                f"this state of torchdata's StatefulDataLoader has no {', '.join(missing)}, so it "
                "cannot be checked against this dataset and its order. It was saved by an earlier "
                "version of robostream: resume with that version, or start afresh."
            )
        plan, start = self._check_state({k: v for k, v in state.items() if k not in _OWN})
        share = self.share
        world_size, (worker, num_workers) = state["world_size"], state["worker"]
        if (world_size, num_workers) != (share.cut.world_size, share.num_workers):
            raise StateError(
                f"the state was saved with world_size={world_size} and {num_workers} reading "
                f"processes per rank, but here they are {share.cut.world_size} and "
                f"{share.num_workers}. A StatefulDataLoader resumes only with as many as it was "
                "saved with; a StreamingDataLoader resumes with any number."
            )
        self.share = SampleShare(plan, share.cut, start, worker, num_workers)
        self.delivered = state["delivered"]
        self.close()
        self._on_move(plan.epoch)

    def close(self) -> None:
        """Close what is open for the samples to come."""
        if self._samples is not None:
            self._samples.close()  # type: ignore[attr-defined]  # a generator
            self._samples = None

    def _build(self) -> Iterator[dict[str, Any]]:
        while self.delivered < len(self.share):
            plan = self._bad_episodes.plan_of(self.share.plan)
            share = self.share = dataclasses.replace(self.share, plan=plan)
            begin = share.step(self.delivered)
            start = share.start + begin * share.cut.world_size
            tour = Schedule(plan, share.cut, start)
            try:
                yield from self._deliver(tour, share, begin)
            except BadSampleError as bad:
                cause = bad.__cause__
                assert isinstance(cause, Exception)
                failed = Failed(0, 0, bad.episode, bad.frame, bad.position, cause, "")
                self._bad_episodes.set_aside(failed, plan)

    def _deliver(self, tour: Schedule, share: SampleShare, begin: int) -> Iterator[dict[str, Any]]:
        delivery = BatchBuilder(self._worker, tour, share.lanes)
        ours = dict.fromkeys(share._own)
        try:
            while (part := delivery.next_share()) is not None:
                if (begin + part.step) % share._period in ours:
                    yield self._sample(delivery, part)
        finally:
            delivery.close()

    def _sample(self, delivery: BatchBuilder, part: Any) -> dict[str, Any]:
        layout = self._worker.layout
        arrays = {k: np.empty((1, *shape), dtype) for k, (shape, dtype) in layout.arrays.items()}
        with kept_generators(layout.spec.image_transforms):
            (texts,) = delivery.fill([(part, arrays)])
        sample: dict[str, Any] = {key: torch.from_numpy(a)[0] for key, a in arrays.items()}
        return sample | {key: texts[key][0] for key in layout.texts}
