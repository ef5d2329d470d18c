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
from dataclasses import replace
from math import gcd
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from robostream.decode import Clip, ClipUses
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


class OpenClip(Protocol):
    """Opens the clip of a camera."""

    def __call__(
        self,
        camera: int,
        episode: int,
        samples: Ints,
        steps: Ints,
        *,
        is_behind: bool = False,
        split: int = 0,
    ) -> ClipUses:
        """Return the clip's uses; see `ClipUses` for the arguments."""


class LaneShare(NamedTuple):
    """What one worker owns of the samples of a lane, or of a block of it.

    Attributes:
        rows: Whether it owns their rows.
        videos: The cameras it owns that are stored as video.
        others: The cameras it owns whose images are stored in Parquet, or that are missing.
    """

    rows: bool
    videos: list[int]
    others: list[int]


class EpisodeRun(NamedTuple):
    """A segment in a lane: place p holds frame `p * stride + shift` of the episode."""

    episode: int
    shift: int
    stride: int

    def frame(self, place: int) -> int:
        """Return the frame at a place."""
        return place * self.stride + self.shift


class LanePart:
    """The part of a segment that lies in a lane (and in one block of it).

    Attributes:
        run: Which frames of an episode the places of the lane are.
        start: The first place of the lane that belongs to the part.
        stop: One past its last place.
        share: What this worker owns of it.
        clips: One for each video camera that this worker owns; None until it is opened.
    """

    __slots__ = ("clips", "run", "share", "start", "stop")

    def __init__(self, run: EpisodeRun, start: int, stop: int, share: LaneShare) -> None:
        self.run = run
        self.start = start
        self.stop = stop
        self.share = share
        self.clips: list[ClipUses] | None = None

    def open(self, clips: list[ClipUses]) -> None:
        """Give the part its clips."""
        self.clips = clips

    def retire(self) -> None:
        """Forget the clips, whose frames are all delivered. The part does not open again."""
        self.clips = []


class LaneLookahead:
    """One lane of one iterator, in a process that owns a part of it.

    Args:
        schedule: What is delivered.
        number: The number of the lane in the plan.
        share_of: Returns what this worker owns of an episode in a block of the lane. With a
            shuffle, the whole lane is one block.
        windows_of: Returns the least and the greatest offset of each camera's window in the samples
            of an episode, in frames.
        open_clip: Opens a clip.
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
        windows_of: Callable[[int], list[tuple[int, int]]],
        open_clip: OpenClip,
        *,
        stagger: int,
    ) -> None:
        self._schedule = schedule
        self._number = number
        self._lane, self._begin = schedule.plan.lane(number)
        self._length = self._lane.length
        self._starts = schedule.plan.line.starts
        self._share_of = share_of
        self._windows_of = windows_of
        self._open_clip = open_clip
        self.runs_ahead = self._length >= _WINDOWS_PER_LANE * self._lane.window
        self._block = self._length if schedule.plan.shuffle else BLOCK_FRAMES
        self._end = self._lane.entry + self._length + self._lane.window
        self._parts: dict[tuple[int, int], LanePart] = {}
        self._latest: tuple[tuple[int, int], LanePart] | None = None
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
        segment = bisect_right(self._starts, self._begin + place) - 1
        key = (segment, place // self._block)
        part = self._parts.get(key) or self._new_part(key)
        run = part.run
        return part, place * run.stride + run.shift

    def open(self, part: LanePart) -> list[ClipUses]:
        """Return the clips of a part; the first call opens them."""
        if part.clips is None:
            part.open(self._open_clips(part))
        return part.clips or []

    def run_ahead(self, head: int) -> list[tuple[ClipUses, int, int]]:
        """Count one more sample as delivered; return the frames to decode ahead now.

        Args:
            head: The head of the lane with that sample.

        Returns:
            Ranges of frames of clips: (clip, first, stop).
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
            run = part.run
            for uses in clips:
                clip = uses.clip
                back, forth = self._windows_of(run.episode)[clip.camera]
                # Of a sample's window, only the last frames are new; the others are in the windows
                # of the samples before it. The first sample of a part has none before it.
                new = back if is_first else max(back, forth - run.stride + 1)
                first = run.frame(place) + new - clip.first
                last = run.frame(stop - 1) + forth - clip.first
                found.append((uses, max(first, 0), min(last, len(clip) - 1) + 1))
        return found

    @property
    def is_catching_up(self) -> bool:
        """Whether decoding is within a window of the first head.

        Of the frames there, some leave only at the end of the epoch.
        """
        return self._ahead < self._first_head + self._lane.window

    @property
    def window_steps(self) -> int:
        """About how many steps it takes until as many frames have left as a window has."""
        return -(-self._lane.window * self._schedule.plan.lanes // self._schedule.cut.step_size)

    def clips(self) -> list[ClipUses]:
        """Return all clips that are open."""
        return [uses for part in self._parts.values() for uses in part.clips or ()]

    def coming(self) -> Iterator[UpcomingPart]:
        """Yield what is ours along the lane, from what lies behind the first head on, once around.

        Changes nothing, so that it continues while parts are opened and retired.
        """
        line, length = self._schedule.plan.line, self._length
        begin = self._first_head - (self._lane.window if self._schedule.plan.shuffle else 0)
        frame = begin
        while frame < begin + length:
            place = frame % length
            segment = bisect_right(line.starts, self._begin + place) - 1
            block = place // self._block
            begins, ends = self._bounds(segment, block)
            first = max(begins, self._split) if self._split <= place else begins
            stop = min(ends, self._split) if self._split > place else ends
            ours, steps = self._steps(begins, ends)
            here = slice(first - begins, stop - begins)
            soon = steps[here][ours[here]]
            run = self._run(segment)
            share = self._share_of(block, run.episode)
            if len(soon) and any(share) and run.episode not in self._schedule.plan.quarantined:
                rows, at = share.rows or bool(share.others), frame - self._first_head
                frames = run.frame(first), run.frame(stop - 1) + 1
                part = (run.episode, *frames, rows, share.videos)
                yield UpcomingPart(int(soon.min()), int(steps[ours].max()), at, *part)
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
            self._windows_of(clip.episode)[clip.camera] == (0, 0) and _has_tiny_gops(clip)
            for clip in clips
        ):
            self.runs_ahead = False

    def _new_part(self, key: tuple[int, int]) -> LanePart:
        if self._latest is not None and self._latest[0] == key:
            return self._latest[1]
        segment, block = key
        run = self._run(segment)
        share = self._share_of(block, run.episode)
        part = LanePart(run, *self._bounds(segment, block), share)
        self._latest = key, part
        if self._schedule.plan.shuffle or share.videos:
            self._parts[key] = part
        return part

    def _open_clips(self, part: LanePart) -> list[ClipUses]:
        videos, run = part.share.videos, part.run
        ours, steps = self._steps(part.start, part.stop)
        if not (videos and ours.any()) or run.episode in self._schedule.plan.quarantined:
            return []
        samples = (np.arange(part.start, part.stop) * run.stride + run.shift)[ours]
        steps = steps[ours]
        behind = (self._first_head - part.stop) % self._length
        is_behind = self.runs_ahead and behind < self._lane.window
        # A frame is first needed by the sample whose window reaches furthest to it.
        return [
            self._open_clip(
                camera,
                run.episode,
                samples,
                steps,
                is_behind=is_behind,
                split=run.frame(self._split) + self._windows_of(run.episode)[camera][1],
            )
            for camera in videos
        ]

    def _place_of_split(self, margin: int) -> int:
        """Return where in the lane a part is split into two whose bytes are fetched separately.

        When an iterator begins, the bytes of all frames in the window behind the first head are due
        at once, and those just before it soon. What lies further ahead in the same part is due
        much later and would delay them. If all of the lane is mixed, all of it is due: 0.
        """
        if self._lane.window == self._length or not self._schedule.plan.shuffle:
            return 0
        return (self._first_head + margin) % self._length

    def _run(self, segment: int) -> EpisodeRun:
        """Return which frames of its episode a segment puts into the lane."""
        runs, begin = self._schedule.plan.line.segments, int(self._starts[segment]) - self._begin
        stride = int(runs.strides[segment])
        shift = int(runs.firsts[segment]) - begin * stride
        return EpisodeRun(int(runs.episodes[segment]), shift, stride)

    def _bounds(self, segment: int, block: int) -> tuple[int, int]:
        """Return the frames [first, stop) of a part."""
        starts = self._starts
        first = max(0, int(starts[segment]) - self._begin, block * self._block)
        end = min(int(starts[segment + 1]) - self._begin, (block + 1) * self._block)
        return first, min(self._length, end)

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
