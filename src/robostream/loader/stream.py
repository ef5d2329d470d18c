# SPDX-License-Identifier: Apache-2.0
"""`FrameStream`: what all streams have in common, and their samples, built in this process.

A plain DataLoader iterates over copies of a stream. Each of its workers builds all samples of some
lanes, so that no two workers decode the same frames.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn, SupportsIndex

import numpy as np
import torch
from torch.utils.data import IterableDataset, get_worker_info

from robostream import arguments
from robostream.batches import BadSampleError, BatchBuilder, WorkerContext, preserve_generators
from robostream.device import refuse_gpu
from robostream.errors import SelectionError, StateError
from robostream.loader.cursor import StreamCursor
from robostream.loader.position import EpochKey, for_pickle, refuse_copy
from robostream.meta import forward
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    Schedule,
    ScheduledStep,
    WorkerShard,
    check_batches,
    counts_batches,
    rank_lanes,
)

# The keys that the state of an iterator adds to the state of the order.
_OWN = ("world_size", "worker", "delivered")
_IN_WORKER = "kept by the iterator of a worker"
_WORK = ("fetch", "decode", "convert", "copy")


def cursor_of(stream: FrameStream) -> StreamCursor:
    """Return the specification and position of a stream, for the loaders over it."""
    return stream._cursor


class FrameStream(IterableDataset[dict[str, Any]]):
    """An ordered, resumable stream of samples that ranks share: of one dataset, or a mixture.

    Args:
        cursor: What it delivers, and where it stands.
        repo_id: Its name.
        video_decode_device: Where its loaders decode videos.
    """

    num_frames: Final[int] = forward(
        "_cursor.order.num_frames", "Frames that all ranks together deliver in an epoch."
    )
    seed: Final[int] = forward("_cursor.order.seed", "Seed of the order.")
    shuffle: Final[bool] = forward("_cursor.order.shuffle", "Whether the order is shuffled.")
    episode_pool_size: Final[int] = forward(
        "_cursor.order.pool_size", "About how many episodes are mixed at a time, over all ranks."
    )
    rank: Final[int] = forward(
        "_cursor.rank.rank", "The number of this process among those that share an epoch."
    )
    world_size: Final[int] = forward(
        "_cursor.rank.world_size", "How many processes share an epoch."
    )
    lanes: Final[int] = forward("_cursor.order.lanes", "How many lanes the order is cut into.")

    # The process that opened it, and its context. A copy begins with None.
    _context: tuple[int, WorkerContext] | None = None

    def __init__(self, cursor: StreamCursor, repo_id: str, video_decode_device: str) -> None:
        self._cursor = cursor
        self.repo_id: str = repo_id
        self.video_decode_device: str = video_decode_device

    @property
    def num_shards(self) -> int:
        """How many workers of a plain DataLoader get samples: as many as this rank has lanes."""
        return len(rank_lanes(self._cursor.cut, self.lanes))

    def __len__(self) -> int:
        """Return how many samples this rank delivers in an epoch."""
        return -(-self.num_frames // self.world_size)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the order of an epoch."""
        return self._cursor.plan(epoch)

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator, also of loaders over this stream, begin `epoch`.

        A loaded state in that epoch stays if no iterator has continued from it yet.
        """
        epoch, cursor = arguments.whole_number(epoch, "epoch", least=0), self._cursor
        cursor.position.set_epoch(epoch, is_used=cursor.is_read_by_workers)

    def __getitem__(self, item: object) -> NoReturn:
        raise SelectionError(
            "a StreamingLeRobotDataset has no items by number: iterate over it, or over a "
            "StreamingDataLoader of it. LeRobotDataset has dataset[3] and dataset[3:5]."
        )

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return an iterator, in the main process or in a worker of a plain DataLoader."""
        info, cursor = get_worker_info(), self._cursor
        position, cut = cursor.position, cursor.cut
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        version, start = position.version, position.next_start()
        share = SampleShare(cursor.plan(start.epoch), cut, start.position, worker, num_workers)
        skipped = 0
        if position.is_pending and position.batches_taken is not None:
            share, skipped = skip_batches(share, *position.batches_taken)
        first = share.plan.epoch
        base_seed = None if info is None else info.seed - info.id
        epoch, key = cursor.epochs.begin(version, first, base_seed)
        if epoch != first:
            share, skipped = SampleShare(cursor.plan(epoch), cut, 0, worker, num_workers), 0
        context = self._open_context(num_workers)
        return SampleIterator(share, skipped, context, cursor, version, key)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration over this object itself stands.

        A loader has its own state, and so have the workers of a plain DataLoader, whose progress
        this object cannot see.
        """
        if get_worker_info() is not None:
            return {_IN_WORKER: True}  # the state of the worker's iterator has its position
        self._cursor.check_is_reader()
        cursor = self._cursor.position.cursor
        return self._cursor.capture(self._cursor.current_plan(cursor.epoch), cursor.position)

    def load_state_dict(self, state: Mapping[str, Any], *, skip_epoch: bool = False) -> None:
        """Continue where a state stands, on any number of ranks and workers.

        Takes a state of this class or of StreamingDataLoader, or {"batches_consumed",
        "batch_size"}, the batches each rank has taken from a plain DataLoader with as many workers.
        Loaders over this stream continue there too with their next iterator.

        If the weights or datasets of a mixture have changed, the new ones begin with the next
        epoch. In the middle of an epoch that is an error, unless `skip_epoch` drops the rest of it.
        """
        position = self._cursor.position
        if counts_batches(state):
            position.stage(Cursor(0, 0), check_batches(state))
        elif _IN_WORKER not in state:
            position.stage(self._cursor.restore(state, skip_epoch=skip_epoch))

    def video_decoder_cache_stats(self) -> dict[str, float]:
        """Return hits, misses, evictions and hit rate of the open video files in this process."""
        stats = self._stats()
        counts = {name: stats[f"file_{name}"] for name in ("hits", "misses", "evictions")}
        return counts | {"hit_rate": round(stats["file_hit_rate"], 4)}

    def timing_stats(self) -> dict[str, float]:
        """Return the seconds of each kind of work in iterating over this object itself."""
        stats = self._stats()
        return {f"{kind}_s_total": stats[f"{kind}_s"] for kind in _WORK}

    def close(self) -> None:
        """Close the files and decoders of this process; the next iterator opens them again."""
        if self._context is not None and self._context[0] == os.getpid():
            self._context[1].close()
        self._context = None

    def __getstate__(self) -> Any:
        # A copy stands where this one does, moves on independently and opens its own files.
        own = {"_context": None, "_cursor": copy.copy(self._cursor)}
        return for_pickle(self.__dict__ | own, next(iter(self._cursor.transforms), None))

    def _open_context(self, num_workers: int) -> WorkerContext:
        """Return the context in which this process builds samples; a fork opens its own."""
        if self._context is None or self._context[0] != os.getpid():
            refuse_gpu(self.video_decode_device)
            frames, budgets = self._cursor.choose_resources(num_workers)
            layout = self._cursor.layout
            # Frames are not shared with other processes, even if all would fit.
            budgets = dataclasses.replace(budgets, frame_bytes=frames.nbytes // num_workers)
            shard = WorkerShard(0, 1, len(layout.cameras))
            self._context = os.getpid(), WorkerContext(layout, shard, budgets)
        return self._context[1]

    def _stats(self) -> dict[str, float]:
        context = self._open_context(1)
        context.count()
        return context.statistics.summary()


@dataclass(frozen=True)  # without slots, which cached properties do not work with
class SampleShare:
    """The samples of a rank from `start` on that one of several processes delivers, in order."""

    plan: EpochPlan
    cut: Cut  # the rank, with a batch of one sample
    start: int  # the position at which the rank begins
    worker: int  # which of the processes
    num_workers: int  # how many processes share the rank's lanes

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


@dataclass(eq=False, repr=False)
class SampleIterator:
    """Yields one process's samples of an epoch, without those that were skipped.

    Resumes from its own state, which torchdata's StatefulDataLoader saves and restores worker by
    worker.
    """

    _share: SampleShare
    _delivered: int  # how many samples of the share were delivered or skipped
    _context: WorkerContext
    _stream: StreamCursor
    _version: int  # of the stream's position when the iterator began
    _key: EpochKey | None  # in the table of epochs; None in the main process
    _samples: Iterator[dict[str, Any]] | None = None

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
