# SPDX-License-Identifier: Apache-2.0
"""How far ahead frames are decoded, what memory that takes, and when bytes are used. Pure.

Times of use are positions counted through all epochs. So all processes of a run agree on them,
whatever their ranks and batches, and the cache can keep the bytes that the run needs soonest.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf, isqrt
from typing import NamedTuple

from robostream.plan.epoch import EpochPlan
from robostream.plan.schedule import Schedule

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


def margin_frames(window: int) -> int:
    """Return how many frames decoding stays ahead of a lane's head. Pure.

    The head deviates from an even pace by at most a few square roots of the window.
    """
    return min(2 * isqrt(window) + 2 * CHUNK_FRAMES, window)


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

        Args:
            head: One past the furthest frame of the lane that was delivered.
            passed: The number of frames that have left the lane since the iterator began.
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
        plans = [self._next_epoch]
        if self._repeats:
            plans.insert(0, schedule.plan)
        read = schedule.start + (part.last_step + 1) * schedule.cut.step_size
        for plan in plans:
            positions = plan.uses(*frames)
            positions = positions[positions >= (read if plan is schedule.plan else 0)]
            if positions.size:
                return self._time(plan, int(positions.min()))
        return inf

    @cached_property
    def _next_epoch(self) -> EpochPlan:
        return self._schedule.plan.replace(epoch=self._schedule.plan.epoch + 1)

    @cached_property
    def _repeats(self) -> bool:
        """Whether an epoch may have several segments of an episode."""
        line = self._schedule.plan.line
        return line.ids.size < line.segments.counts.size

    @staticmethod
    def _time(plan: EpochPlan, position: int) -> float:
        return float(plan.epoch * plan.num_frames + position)
