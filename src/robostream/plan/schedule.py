# SPDX-License-Identifier: Apache-2.0
"""The schedule of an iterator: which frame of which lane goes to which place of each batch. Pure.

It covers the lanes that one process works on, from the position where the iterator began to the end
of its epoch, and is computed a chunk of steps at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

import numpy as np

from robostream.plan.epoch import EpochPlan
from robostream.plan.hashing import Ints
from robostream.plan.lanes import head_of_lane, unroll_lane
from robostream.plan.sharding import Cut, chunk_positions, frames_at, step_positions, steps_left

_NONE = np.empty(0, np.int64)
_ALL_FRAMES = 1 << 62


@dataclass(frozen=True, slots=True)
class Schedule:
    """One pass of an iterator over an epoch, from `start` on."""

    plan: EpochPlan
    cut: Cut  # the rank's share of it, the batch size and the tail rule
    start: int  # the position at which it begins

    @property
    def num_steps(self) -> int:
        """How many batches the rank delivers."""
        return steps_left(self.cut, self.plan.num_frames, self.start)

    @property
    def num_samples(self) -> int:
        """The samples that this rank delivers."""
        steps = self.num_steps
        return (steps - 1) * self.cut.batch_size + len(self.positions(steps - 1)) if steps else 0

    @property
    def stop(self) -> int:
        """The position after the last one delivered; frames that complete the tail do not count."""
        return min(self.start + self.num_steps * self.cut.step_size, self.plan.num_frames)

    def positions(self, step: int) -> range:
        """Return the rank's positions in a step; those beyond the epoch complete the tail."""
        return step_positions(self.cut, self.plan.num_frames, self.start, step)


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledStep:
    """The work of one process for one batch; lists have an entry for each sample of its lanes."""

    step: int  # the number of the batch, from 0
    size: int  # samples in the whole batch
    places: list[int]  # where in the batch each sample goes
    lanes: list[int]  # the index of its lane among those of the process
    frames: list[int]  # its frame on the endless line of the lane
    heads: list[int]  # the head of the lane once the sample is delivered
    # (place, position) of the samples that belong to no lane of the rank.
    extras: list[tuple[int, int]]


def schedule_steps(schedule: Schedule, lanes: list[int]) -> Iterator[ScheduledStep]:
    """Yield every step of a schedule for a process that works on `lanes`, ascending."""
    heads = _first_heads(schedule, lanes)
    extras = _quarantined_places(schedule)
    per_chunk = max(1, chunk_positions(schedule.plan) // schedule.cut.step_size)
    for begin in range(0, schedule.num_steps, per_chunk):
        steps = range(begin, min(begin + per_chunk, schedule.num_steps))
        yield from _chunk(schedule, lanes, steps, heads, extras)


def extra_frame(schedule: Schedule, position: int) -> tuple[int, int]:
    """Return the (episode, frame) of a sample that belongs to no lane. Pure."""
    episodes, frames = frames_at(schedule.plan, range(position, position + 1))
    return int(episodes[0]), int(frames[0])


def _chunk(
    schedule: Schedule,
    lanes: list[int],
    steps: range,
    heads: list[int],
    extras: dict[int, list[tuple[int, int]]],
) -> Iterator[ScheduledStep]:
    size, world = schedule.cut.step_size, schedule.cut.world_size
    num_frames = schedule.plan.num_frames
    first = schedule.start + steps.start * size
    last = min(schedule.start + steps.stop * size, num_frames)
    found = [_lane_part(schedule, lane, first, last, heads, at) for at, lane in enumerate(lanes)]
    found = found or [(_NONE, _NONE, _NONE)]
    owners = np.repeat(np.arange(len(found)), [len(part[0]) for part in found])
    columns = [*(np.concatenate(part) for part in zip(*found, strict=True)), owners]
    order = np.argsort(columns[0])
    listed = chain.from_iterable(extras.get(step, ()) for step in steps)
    quarantined = [position for _, position in listed]
    if quarantined:
        order = order[~np.isin(columns[0][order], quarantined)]
    positions, frames, reached, owners = (column[order] for column in columns)
    starts = schedule.start + (positions - schedule.start) // size * size
    places = (positions - starts - (schedule.cut.rank - starts) % world) // world
    begins = schedule.start + np.arange(steps.start, steps.stop + 1) * size
    edges = np.searchsorted(positions, begins).tolist()
    for step, (begin, end) in zip(steps, pairwise(edges), strict=True):
        lists = [column[begin:end].tolist() for column in (places, owners, frames, reached)]
        spots = step_positions(schedule.cut, num_frames, schedule.start, step)
        more = list(extras.get(step, ()))
        if spots[-1] >= num_frames:
            more += [(n, p) for n, p in enumerate(spots) if p >= num_frames]
        yield ScheduledStep(step, len(spots), lists[0], lists[1], lists[2], lists[3], more)


def _lane_part(
    schedule: Schedule, number: int, first: int, last: int, heads: list[int], at: int
) -> tuple[Ints, Ints, Ints]:
    """Return position, frame and head of a lane's samples at the rank's positions [first, last)."""
    plan, cut = schedule.plan, schedule.cut
    places = np.arange(-(-(first - number) // plan.lanes), -(-(last - number) // plan.lanes))
    if not len(places):
        return places, places, places
    lane, _ = plan.lane(number)
    frames = unroll_lane(lane, int(places[0]), int(places[-1]) + 1)
    positions = places * plan.lanes + number
    if cut.world_size > 1:
        mine = positions % cut.world_size == cut.rank
        positions, frames = positions[mine], frames[mine]
    reached = np.maximum(np.maximum.accumulate(frames) + 1, heads[at])
    if len(reached):
        heads[at] = int(reached[-1])
    return positions, frames, reached


def first_place(schedule: Schedule, number: int) -> int:
    """Return the first place of a lane at or after the start of a schedule. Pure."""
    return max(0, -(-(schedule.start - number) // schedule.plan.lanes))


def _first_heads(schedule: Schedule, lanes: list[int]) -> list[int]:
    return [head_of_lane(schedule.plan.lane(n)[0], first_place(schedule, n)) for n in lanes]


def _quarantined_places(schedule: Schedule) -> dict[int, list[tuple[int, int]]]:
    """Return, by step, (place in the batch, position) of the rank's quarantined places."""
    found: dict[int, list[tuple[int, int]]] = {}
    for episode in schedule.plan.quarantined:
        positions = schedule.plan.uses(episode, 0, _ALL_FRAMES)
        mine = (positions % schedule.cut.world_size == schedule.cut.rank) & (
            positions >= schedule.start
        )
        for position in positions[mine & (positions < schedule.stop)].tolist():
            step = (position - schedule.start) // schedule.cut.step_size
            place = schedule.positions(step).index(position)
            found.setdefault(step, []).append((place, position))
    return found
