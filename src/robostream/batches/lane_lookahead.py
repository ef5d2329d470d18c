# SPDX-License-Identifier: Apache-2.0
"""The clips of a lane, and which of their frames are decoded ahead of delivery.

The frames that leave a lane next lie in a stretch of about a window. For each frame that leaves,
the stretch moves on along the line by one frame. So decoding moves along the line too, a few frames
before the furthest one delivered, and decoded frames wait for their delivery. When an iterator
begins, nobody has decoded the frames of the stretch yet: they are decoded when they fall due.

If the window is most of the lane, no stretch moves: every frame is decoded when it falls due. Short
GOPs are also decoded on demand where no camera has a window: then only the rest of a GOP waits,
which takes a third of the memory and of the copies.

Without a shuffle, a lane delivers its frames in order, and workers own blocks of it in turn instead
of whole lanes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from math import gcd
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from robostream.decode import Clip, ClipUses, Deliveries
from robostream.plan import (
    CHUNK_FRAMES,
    DecodePacing,
    Ints,
    Schedule,
    UpcomingPart,
    first_place,
    head_of_lane,
    is_chunk_due,
    margin_frames,
    places_in_lane,
)

# Decoding runs ahead in lanes of at least so many windows. In a shorter one it would hardly have
# caught up when the epoch ends.
_WINDOWS_PER_LANE = 3
# Without a shuffle, one worker owns so many frames of a lane, then the next one as many.
BLOCK_FRAMES = 32
# Of a GOP that is no longer than this, few frames wait for their delivery when one is decoded.
_TINY_GOP_FRAMES = 4


_Places = TypeVar("_Places", int, Ints)


class LaneShare(NamedTuple):
    """What one worker owns of the samples of an episode, in a lane or in a block of it.

    Attributes:
        rows: Whether it owns their rows.
        videos: The cameras it owns that are stored as video.
        others: The cameras it owns whose images are stored in Parquet, or that are missing.
        windows: The least and the greatest offset of each camera's window, in frames.
    """

    rows: bool
    videos: list[int]
    others: list[int]
    windows: list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class LanePart:
    """The part of a segment that lies in a lane (and in one block of it).

    Attributes:
        episode: The episode; place p of the lane holds its frame `p * stride + shift`.
        start: The first place of the lane that belongs to the part.
        stop: One past its last place.
        share: What this worker owns of it.
        clips: One for each video camera that this worker owns, once they are opened. Cleared when
            all their frames are delivered; the part does not open again.
    """

    episode: int
    start: int
    stop: int
    shift: int
    stride: int
    share: LaneShare
    clips: list[ClipUses] = field(default_factory=list)

    def frame(self, place: _Places) -> _Places:
        """Return the episode's frame at a place, or at several."""
        return place * self.stride + self.shift


class LaneLookahead:
    """One lane of one iterator, in a process that owns a part of it.

    Args:
        schedule: What is delivered.
        number: The number of the lane in the plan.
        share_of: Returns what this worker owns of an episode in a block of the lane. With a
            shuffle, the whole lane is one block.
        open_clip: Opens the clip of a camera of an episode.
        stagger: How many frames earlier decoding begins. It differs between the lanes of a process,
            so that they do not all decode a chunk for the same batch.

    Attributes:
        runs_ahead: Whether frames are decoded ahead of delivery.
    """

    def __init__(
        self,
        schedule: Schedule,
        number: int,
        share_of: Callable[[int, int], LaneShare],
        open_clip: Callable[[int, int, Deliveries], ClipUses],
        *,
        stagger: int,
    ) -> None:
        self._schedule = schedule
        self._number = number
        self._lane, self._begin = schedule.plan.lane(number)
        self._length = self._lane.length
        self._starts = schedule.plan.line.starts
        self._share_of = share_of
        self._open_clip = open_clip
        self.runs_ahead = self._length >= _WINDOWS_PER_LANE * self._lane.window
        self._block = self._length if schedule.plan.shuffle else BLOCK_FRAMES
        self._end = self._lane.entry + self._length + self._lane.window
        self._parts: dict[tuple[int, int], LanePart] = {}
        self._opened: set[LanePart] = set()
        self._latest: dict[tuple[int, int], LanePart] = {}
        self._first_head = head_of_lane(self._lane, first_place(schedule, number))
        self._ahead = self._first_head
        if schedule.plan.shuffle:
            self._ahead -= self._lane.window + stagger % CHUNK_FRAMES
        self._samples = 0
        # Of so many frames that leave the lane, the rank delivers one.
        self._stride = schedule.cut.world_size // gcd(schedule.cut.world_size, schedule.plan.lanes)
        margin = margin_frames(self._lane.window)
        self._pacing = DecodePacing(self._first_head, margin, behind=margin + self._lane.window)
        self._split = self._place_of_split(margin)
        self._has_chosen_start = not schedule.plan.shuffle
        self._is_first_part = True

    def part_at(self, frame: int) -> tuple[LanePart, int]:
        """Return the part that a frame of the endless line lies in, and the episode's frame."""
        place = frame % self._length
        key = bisect_right(self._starts, self._begin + place) - 1, place // self._block
        part = self._parts.get(key) or self._latest.get(key)
        if part is None:
            part = self._make_part(*key)
            self._latest = {key: part}
            if self._schedule.plan.shuffle or part.share.videos:
                self._parts[key] = part
        return part, part.frame(place)

    def open(self, part: LanePart) -> list[ClipUses]:
        """Return the clips of a part; the first call opens them."""
        # Without videos there is nothing to open. Such parts are not remembered: in an unshuffled
        # epoch a worker meets new ones with every block of the others.
        if part in self._opened or not part.share.videos:
            return part.clips
        share, plan = part.share, self._schedule.plan
        ours, steps = self._steps(part.start, part.stop)
        if ours.any() and part.episode not in plan.quarantined:
            samples, steps = part.frame(np.arange(part.start, part.stop)[ours]), steps[ours]
            behind = (self._first_head - part.stop) % self._length
            is_behind = self.runs_ahead and behind < self._lane.window
            clips = []
            for camera in share.videos:
                # A frame is first needed by the sample whose window reaches furthest to it.
                split = part.frame(self._split) + share.windows[camera][1]
                delivered = Deliveries(samples, steps, is_behind, split)
                clips.append(self._open_clip(camera, part.episode, delivered))
            part.clips.extend(clips)
        self._opened.add(part)
        return part.clips

    def run_ahead(self, head: int) -> list[tuple[ClipUses, int, int]]:
        """Count one more sample as delivered; return the frames to decode ahead now.

        They are ranges of frames of clips: (clip, first, stop). `head` is that of the lane with the
        sample.
        """
        if not self._has_chosen_start:
            self._has_chosen_start = True
            self._choose_start()
        if not self.runs_ahead:
            return []
        self._samples += 1
        goal = self._goal(head)
        if not is_chunk_due(self._ahead, head, goal):
            return []
        goal = min(goal, self._end)
        found: list[tuple[ClipUses, int, int]] = []
        while self._ahead < goal:
            part, _ = self.part_at(self._ahead)
            place = self._ahead % self._length
            stop = min(goal - self._ahead + place, part.stop)
            clips = self.open(part)
            self._ahead += stop - place
            is_first = place == part.start or self._is_first_part
            self._is_first_part = False
            for uses in clips:
                clip = uses.clip
                back, forth = part.share.windows[clip.camera]
                # Of a sample's window, only the last frames are new; the others are in the windows
                # of the samples before it. The first sample of a part has none before it.
                new = back if is_first else max(back, forth - part.stride + 1)
                first = part.frame(place) + new - clip.first
                last = part.frame(stop - 1) + forth - clip.first
                found.append((uses, max(first, 0), min(last, len(clip) - 1) + 1))
        return found

    @property
    def catch_up_steps(self) -> int | None:
        """While decoding is within a window of the first head, the steps that two windows take.

        Of the frames there, some leave only at the end of the epoch.
        """
        window, cut = self._lane.window, self._schedule.cut
        is_catching_up = self._ahead < self._first_head + window
        return (
            2 * -(-window * self._schedule.plan.lanes // cut.step_size) if is_catching_up else None
        )

    def clips(self) -> list[ClipUses]:
        """Return all clips that are open."""
        return [uses for part in self._parts.values() for uses in part.clips]

    def coming(self) -> Iterator[UpcomingPart]:
        """Yield what is ours along the lane, from what lies behind the first head on, once around.

        Changes nothing, so that it continues while parts are opened and retired.
        """
        length = self._length
        begin = self._first_head - (self._lane.window if self._schedule.plan.shuffle else 0)
        frame = begin
        while frame < begin + length:
            place = frame % length
            segment = bisect_right(self._starts, self._begin + place) - 1
            part = self._make_part(segment, place // self._block)
            first = max(part.start, self._split) if self._split <= place else part.start
            stop = min(part.stop, self._split) if self._split > place else part.stop
            ours, steps = self._steps(part.start, part.stop)
            here = slice(first - part.start, stop - part.start)
            soon, share = steps[here][ours[here]], part.share
            rows = share.rows or bool(share.others)
            is_read = len(soon) and (rows or share.videos)
            if is_read and part.episode not in self._schedule.plan.quarantined:
                yield UpcomingPart(
                    step=int(soon.min()),
                    last_step=int(steps[ours].max()),
                    at=frame - self._first_head,
                    episode=part.episode,
                    first=part.frame(first),
                    stop=part.frame(stop - 1) + 1,
                    rows=rows,
                    videos=share.videos,
                )
            frame += stop - place

    def _goal(self, head: int) -> int:
        if not self._schedule.plan.shuffle:
            return head + CHUNK_FRAMES - 1 if head > self._ahead else head
        return self._pacing.goal(head, self._samples * self._stride)

    def _choose_start(self) -> None:
        """Choose where decoding begins, and whether it runs ahead, by the first videos.

        When an iterator begins, nothing is decoded yet, so the frames of every sample that falls
        due must be. Decoding ahead at the same time would be twice the work. So decoding along the
        line begins a window behind the first head and catches up.

        In long GOPs it begins at the first head: there, one frame costs as much as all frames
        before it in its GOP.
        """
        if not self.runs_ahead:
            return
        part, _ = self.part_at(self._first_head)
        clips = [uses.clip for uses in self.open(part)]
        if any(clip.has_long_gops for clip in clips):
            self._ahead = self._first_head
            self._pacing = replace(self._pacing, behind=self._pacing.margin)
        elif clips and all(
            part.share.windows[clip.camera] == (0, 0) and _has_tiny_gops(clip) for clip in clips
        ):
            self.runs_ahead = False

    def _make_part(self, segment: int, block: int) -> LanePart:
        runs, begin = self._schedule.plan.line.segments, int(self._starts[segment]) - self._begin
        end = int(self._starts[segment + 1]) - self._begin
        start = max(0, begin, block * self._block)
        stop = min(self._length, end, (block + 1) * self._block)
        episode, stride = int(runs.episodes[segment]), int(runs.strides[segment])
        shift = int(runs.firsts[segment]) - begin * stride
        return LanePart(episode, start, stop, shift, stride, self._share_of(block, episode))

    def _place_of_split(self, margin: int) -> int:
        """Return where in the lane a part is split into two whose bytes are fetched separately.

        When an iterator begins, the bytes of all frames in the window behind the first head are due
        at once, and those just before it soon. What lies further ahead in the same part is due
        much later and would delay them. If all of the lane is mixed, all of it is due: 0.
        """
        if self._lane.window == self._length or not self._schedule.plan.shuffle:
            return 0
        return (self._first_head + margin) % self._length

    def _steps(self, first: int, stop: int) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Return which of the frames [first, stop) of the lane are ours, and the steps of all."""
        schedule, cut = self._schedule, self._schedule.cut
        positions = places_in_lane(self._lane, first, stop) * schedule.plan.lanes + self._number
        inside = (positions >= schedule.start) & (positions < schedule.stop)
        ours: npt.NDArray[np.bool_] = inside & (positions % cut.world_size == cut.rank)
        return ours, (positions - schedule.start) // cut.step_size


def _has_tiny_gops(clip: Clip) -> bool:
    """Return whether a GOP of a clip's file is hardly more than one frame."""
    index = clip.file.index
    return index.num_frames <= _TINY_GOP_FRAMES * len(index.starts)
