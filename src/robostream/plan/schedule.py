# SPDX-License-Identifier: Apache-2.0
"""The schedule of an iterator: which frame of which lane goes to which place of each batch. Pure.

It covers the lanes that one process works on, from the position where the iterator began to the end
of its epoch, and is computed a chunk of steps at a time. It decides how far ahead frames are
decoded, what memory that takes, and when bytes are used.

Times of use are positions counted through all epochs. So all processes of a run agree on them,
whatever their ranks and batches, and the cache can keep the bytes that the run needs soonest.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from math import inf, isqrt
from typing import NamedTuple

import numpy as np

from robostream.plan.epoch import EpochPlan
from robostream.plan.hashing import Ints
from robostream.plan.lanes import head_of_lane, unroll_lane
from robostream.plan.sharding import Cut, chunk_positions, frames_at, step_positions, steps_left

# Frames decoded at a time: enough for one decoder call, few enough that workers wait little for
# each other.
CHUNK_FRAMES = 8
# Longer GOPs (on average) are decoded in several calls, by a decoder that stays open.
LONG_GOP_FRAMES = 16
# While decoding catches up, it gains one frame for every so many that leave.
_CATCH_UP = 2
# Frames leave at random, so memory is planned for this much more than their mean number.
_SLACK = 1.1
# The lead-in needs more: its GOPs begin before it, and a frame without memory costs its whole GOP.
_LEAD_IN_SLACK = 1.3
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
    heads = [head_of_lane(schedule.plan.lane(n)[0], first_place(schedule, n)) for n in lanes]
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


def margin_frames(window: int) -> int:
    """Return how many frames decoding stays ahead of a lane's head. Pure.

    The head deviates from an even pace by at most a few square roots of the window.
    """
    return min(2 * isqrt(window) + 2 * CHUNK_FRAMES, window)


def lookahead_steps(schedule: Schedule, window_frames: int) -> int:
    """Return in how many steps the frames that are decoded ahead now are all delivered. Pure.

    `window_frames` lie between the ends of the longest window of a sample.
    """
    plan = schedule.plan
    frames = plan.window + window_frames + margin_frames(plan.window) + CHUNK_FRAMES
    return -(-frames * plan.lanes // schedule.cut.step_size)


@dataclass(frozen=True, slots=True)
class CameraFrames:
    """The decoded frames of a camera, as input to `frame_memory`."""

    frame_bytes: int  # bytes of one decoded frame
    gop_frames: int  # frames of the longest GOP
    window_frames: int  # frames from the first to the last offset of the camera's delta timestamps
    has_long_gops: bool  # whether GOPs have more than LONG_GOP_FRAMES frames on average


class FrameMemory(NamedTuple):
    """The bytes of decoded frames that let a rank decode every frame about once."""

    lanes: int  # frames decoded ahead in each lane
    lead_in: int  # frames that are decoded at the start of an epoch and delivered at its end


def frame_memory(
    plan: EpochPlan, lanes: int, cameras: Iterable[CameraFrames], *, decodes_whole_gops: bool
) -> FrameMemory:
    """Return the memory for decoded frames of a rank with so many lanes. Pure.

    On average, half of the frames of a shuffle window are decoded and not yet delivered. A camera
    with delta timestamps keeps its frames longer, by the width of its window. No lane keeps more
    frames than it has. A GPU decodes GOPs of any length whole, so each lane holds one more GOP.

    In a lead-in, half a window of each lane lies between the frames that are delivered first. In
    long GOPs these frames are decoded on the way and stay in memory, because decoding them again at
    the end of the epoch would take as long as the whole pool. In short GOPs they are decoded again.
    """
    ahead = lead_in = 0.0
    most = plan.num_frames / plan.lanes
    for camera in cameras:
        margin = margin_frames(plan.window) + (camera.gop_frames if decodes_whole_gops else 0)
        frames = min(plan.window / 2 * _SLACK + camera.window_frames + margin, most)
        ahead += lanes * frames * camera.frame_bytes
        if camera.has_long_gops and not decodes_whole_gops:
            more = min(plan.window / 2 * _LEAD_IN_SLACK, most - frames)
            lead_in += lanes * more * camera.frame_bytes
    return FrameMemory(round(ahead), round(lead_in))


@dataclass(frozen=True, slots=True)
class DecodePacing:
    """The frame of one lane that decoding should have reached.

    Decoding advances by one frame for each frame that leaves, so every worker has about the same
    work for every batch. The head advances in jumps, because frames leave at random. So decoding
    stays a margin ahead of the head, and goes up to the head if the margin is too small.
    """

    first_head: int  # the head of the lane when the iterator began
    margin: int  # how many frames decoding stays ahead of an evenly moving head
    # How many frames short of that decoding begins; it catches up while frames leave. If it begins
    # before the first head (`behind > margin`), the head may be past it until it has caught up; the
    # frames in between are decoded when they are due.
    behind: int

    def goal(self, head: int, passed: int) -> int:
        """Return the frame that decoding should have reached, exclusive. Pure.

        `head` is one past the furthest delivered frame of the lane; `passed` counts the frames that
        have left it since the iterator began.
        """
        # Frames of quarantined episodes leave without being counted, but the head advances.
        passed = max(passed, head - self.first_head - self.margin)
        lag = max(0, self.behind - passed // _CATCH_UP)
        goal = self.first_head + passed + self.margin - lag
        is_catching_up = lag > 0 and self.behind > self.margin
        return goal if is_catching_up else max(goal, head)


def is_chunk_due(ahead: int, head: int, goal: int) -> bool:
    """Return whether decoding, which has reached `ahead`, should go on to its goal now. Pure.

    It should once a whole chunk is missing, or a frame before the head.
    """
    return goal >= ahead + CHUNK_FRAMES or ahead < head <= goal


@dataclass(frozen=True, slots=True, eq=False)
class UpcomingPart:
    """A part of an episode that this process will read."""

    step: int  # the step at which its first frame is due
    # The step at which the last frame of the episode's part in this lane is due. Parts next to each
    # other share rows, and the GOP at which they meet.
    last_step: int
    at: int  # how many frames of the lane it begins after the iterator's entry
    episode: int
    first: int  # the first frame of the part
    stop: int  # one past the last frame
    rows: bool  # whether rows, or images stored in them, are needed
    videos: list[int]  # the cameras whose videos are needed


class NextUse:
    """Times of use of the parts that one schedule reads."""

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def now(self, part: UpcomingPart) -> float:
        """Return when this schedule first reads a part."""
        schedule = self._schedule
        return self._time(schedule.plan, schedule.start + part.step * schedule.cut.step_size)

    def later(self, part: UpcomingPart) -> float:
        """Return when a part that was read is read next; infinity if not in the next epoch."""
        schedule, frames = self._schedule, (part.episode, part.first, part.stop)
        # This epoch may have several segments of an episode.
        if self._repeats:
            read = schedule.start + (part.last_step + 1) * schedule.cut.step_size
            positions = schedule.plan.uses(*frames)
            if (positions >= read).any():
                return self._time(schedule.plan, int(positions[positions >= read].min()))
        positions = self._next_epoch.uses(*frames)
        return self._time(self._next_epoch, int(positions.min())) if positions.size else inf

    @cached_property
    def _next_epoch(self) -> EpochPlan:
        return self._schedule.plan.replace(epoch=self._schedule.plan.epoch + 1)

    @cached_property
    def _repeats(self) -> bool:
        line = self._schedule.plan.line
        return line.ids.size < line.segments.counts.size

    @staticmethod
    def _time(plan: EpochPlan, position: int) -> float:
        return float(plan.epoch * plan.num_frames + position)
