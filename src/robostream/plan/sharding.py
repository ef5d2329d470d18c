# SPDX-License-Identifier: Apache-2.0
"""How ranks, batches and workers share the order, step by step, from epoch to epoch.

A step is one global batch: the next world_size * batch_size positions. Rank r takes those of them
that are r modulo world_size, so a resume at any position gives every rank its full share.

The tail is the rest of an epoch that does not fill a step. With drop_last it is not delivered.
Without drop_last it is one more, shorter step, padded to a multiple of the world size with the
frames of positions 0, 1, 2 ... of the same epoch. So every rank delivers one more batch, all of the
same size, and at most world_size - 1 frames are delivered twice.

The workers of a rank share its lanes and cameras. A worker owns (lane, camera) pairs: the frames of
that camera in all samples of that lane. The rows of a lane belong to one worker too. So every part
of every batch is built by one worker, and no frame is decoded by two. As all lanes deliver equally
many frames, workers have about the same work. Samples that belong to no lane of the rank (padding
of the tail, replacements of quarantined frames) go to workers by their place in the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from robostream.errors import SelectionError
from robostream.plan.epoch import EpochPlan, pair_digests
from robostream.plan.hashing import Ints


@dataclass(frozen=True, slots=True)
class Cut:
    """One rank's share of the order, and the tail rule.

    Attributes:
        rank: The number of this process.
        world_size: How many processes share the epoch.
        batch_size: Samples per batch of one rank.
        drop_last: Whether to drop the frames at the end that do not fill a global batch.
    """

    rank: int
    world_size: int
    batch_size: int
    drop_last: bool

    def __post_init__(self) -> None:
        if not (0 <= self.rank < self.world_size and self.batch_size >= 1):
            raise ValueError(
                "want 0 <= rank < world_size and batch_size >= 1, got "
                f"rank={self.rank}, world_size={self.world_size}, batch_size={self.batch_size}"
            )

    @property
    def step_size(self) -> int:
        """The number of positions of a full step: the size of the global batch."""
        return self.world_size * self.batch_size


@dataclass(frozen=True, slots=True, order=True)
class Cursor:
    """The next position to deliver, and its epoch.

    Attributes:
        epoch: The number of the epoch, from 0.
        position: The next global position to deliver.
    """

    epoch: int
    position: int


def steps_left(cut: Cut, num_frames: int, position: int) -> int:
    """Return the number of steps of every rank in the epoch from `position` on. Pure."""
    full, tail = divmod(num_frames - position, cut.step_size)
    return full if cut.drop_last or tail == 0 else full + 1


def dropped_frames(cut: Cut, num_frames: int, position: int) -> int:
    """Return the number of frames of the tail that drop_last drops. Pure."""
    return (num_frames - position) % cut.step_size if cut.drop_last else 0


def step_positions(cut: Cut, num_frames: int, position: int, step: int) -> range:
    """Return the rank's positions in the step-th step after `position`. Pure.

    Positions from num_frames on complete the tail: they stand for positions 0, 1, 2 ...
    """
    start = position + step * cut.step_size
    size = min(cut.step_size, -(-(num_frames - start) // cut.world_size) * cut.world_size)
    first = start + (cut.rank - start) % cut.world_size
    return range(first, start + size, cut.world_size)


def rank_lanes(cut: Cut, lanes: int) -> range:
    """Return the lanes a rank takes frames from. Pure.

    If world_size divides their number, each rank has 1 / world_size of them to itself.
    """
    common = gcd(cut.world_size, lanes)
    return range(cut.rank % common, lanes, common)


def frames_at(plan: EpochPlan, positions: range) -> tuple[Ints, Ints]:
    """Return the episode ids and frames at a rank's positions, with padding of the tail. Pure."""
    inside = len(range(positions.start, min(positions.stop, plan.num_frames), positions.step))
    parts = [plan.slice(p, p + 1) for p in (q % plan.num_frames for q in positions[inside:])]
    if inside:
        own = positions[:inside]
        parts.insert(0, plan.slice(own.start, own[-1] + 1, own.step))
    episodes, frames = zip(*parts, strict=True)
    return np.concatenate(episodes), np.concatenate(frames)


def advance(cut: Cut, num_frames: int, cursor: Cursor, steps: int) -> Cursor:
    """Return the cursor after `steps` more steps, which may lie in a later epoch. Pure."""
    per_epoch = steps_left(cut, num_frames, 0)
    if per_epoch == 0:
        raise SelectionError(
            f"the {num_frames} frames of an epoch do not fill one global batch of {cut.step_size} "
            f"({cut.world_size} ranks x {cut.batch_size}), and drop_last drops the rest, so "
            "nothing would ever be delivered. Lower batch_size or set drop_last=False."
        )
    left = steps_left(cut, num_frames, cursor.position)
    if steps < left:
        return Cursor(cursor.epoch, cursor.position + steps * cut.step_size)
    epochs, steps = divmod(steps - left, per_epoch)
    return Cursor(cursor.epoch + 1 + epochs, steps * cut.step_size)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The samples that one rank delivers in one step.

    Attributes:
        step: The number of the step, counted from where the walk began.
        positions: The global positions; those from num_frames on pad the tail.
        episodes: The episode id at each position.
        frames: The frame in that episode.
    """

    step: int
    positions: range
    episodes: Ints
    frames: Ints


def chunk_positions(plan: EpochPlan) -> int:
    """Return how many positions to compute at a time, so that one of them costs little. Pure.

    A chunk of any size sorts the window of each lane. So a chunk takes at least a window from each
    lane, enough positions to make calls cheap, and at most 64 MiB of pairs.
    """
    return min(max(16_384, 64 * plan.lanes, plan.window * plan.lanes), 1 << 22)


def walk(plan: EpochPlan, cut: Cut, position: int, steps: range) -> Iterator[Batch]:
    """Yield the rank's batches of `steps`, numbered from `position` on.

    Args:
        plan: The order of the epoch.
        cut: The rank, the batch size and the tail rule.
        position: The position where step 0 begins.
        steps: All steps (`range(steps_left(...))`), or every n-th.
    """
    per_chunk = max(1, chunk_positions(plan) // (cut.step_size * steps.step))
    for begin in range(0, len(steps), per_chunk):
        chunk = steps[begin : begin + per_chunk]
        spans = [step_positions(cut, plan.num_frames, position, step) for step in chunk]
        whole = range(spans[0].start, spans[-1].stop, cut.world_size)
        episodes, frames = frames_at(plan, whole)
        for step, span in zip(chunk, spans, strict=True):
            own = slice(whole.index(span.start), whole.index(span.start) + len(span))
            yield Batch(step, span, episodes[own], frames[own])


@dataclass(frozen=True, slots=True)
class StepReceipt:
    """The digest of one global batch, and the receipt after it.

    Attributes:
        epoch: The epoch.
        step: The number of the step in the epoch, counted from where the ledger begins.
        stop: The position after the step.
        digest: The digest of the step's (episode, frame) pairs, without those padding a tail.
        receipt: The digest of all pairs of the epoch before `stop`.
    """

    epoch: int
    step: int
    stop: int
    digest: int
    receipt: int


def step_receipts(plan: EpochPlan, cut: Cut, position: int) -> Iterator[StepReceipt]:
    """Yield the receipts of all steps from `position` to the end of the epoch.

    They depend on the size of the global batch, not on how ranks share it.
    """
    steps = steps_left(cut, plan.num_frames, position)
    receipt = plan.receipt(position)
    per_chunk = max(1, chunk_positions(plan) // cut.step_size)
    for begin in range(0, steps, per_chunk):
        chunk = range(begin, min(begin + per_chunk, steps))
        start = position + begin * cut.step_size
        stop = min(position + chunk.stop * cut.step_size, plan.num_frames)
        digests = pair_digests(*plan.slice(start, stop))
        sums = np.add.reduceat(digests, np.arange(0, stop - start, cut.step_size))
        for step, digest in zip(chunk, sums.tolist(), strict=True):
            receipt = (receipt + digest) % (1 << 64)
            last = min(position + (step + 1) * cut.step_size, plan.num_frames)
            yield StepReceipt(plan.epoch, step, last, digest, receipt)


@dataclass(frozen=True, slots=True)
class WorkerShard:
    """The share of worker number `worker` of `num_workers`, for samples with `num_cameras`."""

    worker: int
    num_workers: int
    num_cameras: int

    def __post_init__(self) -> None:
        if not (0 <= self.worker < self.num_workers and self.num_cameras >= 0):
            raise ValueError(
                "want 0 <= worker < num_workers and num_cameras >= 0, got "
                f"worker={self.worker}, num_workers={self.num_workers}, "
                f"num_cameras={self.num_cameras}"
            )

    def owns_rows(self, number: int) -> bool:
        """Return whether this worker writes the rows of a lane of the rank, or of an extra sample.

        The number is that of the lane among the rank's, or the sample's place in the batch.
        """
        return number % self.num_workers == self.worker

    def owns_part(self, lane: int) -> bool:
        """Return whether this worker writes any part of the rank's lane number `lane`."""
        return self.owns_rows(lane) or bool(self.cameras(lane))

    def cameras(self, lane: int) -> list[int]:
        """Return the cameras of the rank's lane number `lane` whose frames this worker decodes.

        Workers get the (lane, camera) pairs in turn, lane by lane. If the numbers of cameras and
        workers have a common divisor, a camera would always go to the same workers, and cameras
        differ in cost. So the cameras shift by one whenever the first worker would get the first
        camera again.
        """
        lanes_per_turn = self.num_workers // gcd(self.num_cameras, self.num_workers)
        return self._own_cameras(lane, shift=lane // lanes_per_turn)

    def extra_cameras(self, place: int) -> list[int]:
        """Return the cameras this worker decodes for an extra sample at a place of the batch."""
        return self._own_cameras(place, shift=0)

    def _own_cameras(self, number: int, shift: int) -> list[int]:
        count, first = self.num_cameras, number * self.num_cameras
        pairs = ((camera, first + (camera + shift) % count) for camera in range(count))
        return [camera for camera, pair in pairs if pair % self.num_workers == self.worker]
