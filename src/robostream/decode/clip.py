# SPDX-License-Identifier: Apache-2.0
"""Clips, and when their frames are delivered."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from robostream.decode.frame_index import Run, packet_span, plan_runs
from robostream.decode.render import Size
from robostream.decode.video_files import VideoFile
from robostream.plan import Ints

NEVER = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """One camera's frames of one episode, or all frames of a file.

    Frames are counted from the first: frame 0 of the clip is frame `first` of the episode.

    Attributes:
        file: The video file.
        numbers: The number in the file of each frame, ascending.
        camera: The index of the camera among those of a sample.
        episode: The episode.
        first: The episode's frame that is frame 0 of the clip.
        size: The size frames are scaled to; None for their own.
        has_long_gops: Whether decoders wait inside its GOPs.
        name: The file and the episode, for messages.
        starts: The frames after the first at which a GOP begins, ascending.
    """

    file: VideoFile
    numbers: Ints | range
    camera: int = 0
    episode: int = -1
    first: int = 0
    size: Size | None = None
    has_long_gops: bool = False
    name: str = field(init=False)
    starts: Ints = field(init=False)
    _base: int | None = field(init=False)
    _frames: dict[int, int] = field(init=False)

    def __post_init__(self) -> None:
        base, last = int(self.numbers[0]), int(self.numbers[-1])
        is_gapless = last - base == len(self.numbers) - 1
        frames = {} if is_gapless else {int(n): frame for frame, n in enumerate(self.numbers)}
        name, gops = self.file.source.name, self.file.index.start_frames
        starts = gops[max(bisect_right(gops, base), 1) : bisect_right(gops, last)]
        if base or not is_gapless:
            starts = starts - base if is_gapless else np.searchsorted(self.numbers, starts)
        object.__setattr__(
            self, "name", name if self.episode < 0 else f"{name}, episode {self.episode}"
        )
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "_base", base if is_gapless else None)
        object.__setattr__(self, "_frames", frames)

    def __len__(self) -> int:
        return len(self.numbers)

    def frame_of(self, number: int) -> int:
        """Return the frame that has a number in the file; -1 if the clip has none."""
        if self._base is None:
            return self._frames.get(number, -1)
        frame = number - self._base
        return frame if 0 <= frame < len(self.numbers) else -1

    def plan_runs(self, frames: Sequence[int]) -> list[Run]:
        """Return the runs that decode some frames, ascending."""
        if not frames:
            return []
        first, stop, base = frames[0], frames[-1] + 1, self._base
        if base is not None and stop - first == len(frames):
            return plan_runs(self.file.index, range(base + first, base + stop))
        return plan_runs(self.file.index, [int(self.numbers[frame]) for frame in frames])

    def gop_of(self, frame: int) -> tuple[int, int]:
        """Return the frames [first, stop) of the clip that share a GOP with a frame."""
        starts = self.starts
        place = bisect_right(starts, frame)
        stop = int(starts[place]) if place < len(starts) else len(self.numbers)
        return int(starts[place - 1]) if place else 0, stop

    def start_from(self, frame: int) -> int:
        """Return the first frame, from `frame` > 0 on, that begins a GOP; else the clip's end."""
        place = bisect_left(self.starts, frame)
        return int(self.starts[place]) if place < len(self.starts) else len(self.numbers)


class Slots(Protocol):
    """The cache slot of each frame of a clip; -1 for a frame that is not cached."""

    def __getitem__(self, frame: int, /) -> int:
        """Return the slot of a frame."""

    def __setitem__(self, frame: int, slot: int, /) -> None:
        """Note the slot of a frame."""


@dataclass(slots=True, eq=False)
class Clock:
    """The step that one iterator is building."""

    step: int = 0

    def move_to(self, step: int) -> None:
        """Set the step."""
        self.step = step


@dataclass(slots=True, eq=False)
class Uses:
    """The frames of a clip that are needed `now`; which are needed later is unknown.

    `slots` has the cache slot of each frame, -1 for one that is not cached. The cache sets them.
    """

    clip: Clip
    now: dict[int, int]
    slots: Slots

    def is_due_later(self, frame: int) -> bool:
        """Return whether a frame is known to be needed again after now."""
        return False

    def missing(self, first: int, stop: int) -> list[int]:
        """Return the frames of [first, stop) that may be needed and are not cached."""
        return [frame for frame in range(first, stop) if self.slots[frame] < 0]

    def due(self, frames: Ints) -> Ints:
        """Return in how many steps each frame is needed next; NEVER if that is unknown."""
        return np.full(len(frames), NEVER)

    def due_of(self, frame: int) -> int:
        """Return the same for one frame, without numpy, which is slow with single numbers."""
        return NEVER


class Deliveries(NamedTuple):
    """Which samples of an episode are delivered, and when.

    Attributes:
        samples: Their frames in the episode, ascending.
        steps: The step that delivers each of them.
        is_behind: Whether they lie behind the frame where their lane was entered, so that decoding
            ahead never reaches them.
        split: The episode's frame before which bytes are fetched separately.
    """

    samples: Ints
    steps: Ints
    is_behind: bool = False
    split: int = 0


class ClipUses(Uses):
    """When the frames of a clip are delivered, and how often still.

    This is the one place that says when a frame is due. The clip has all frames that the delivered
    samples need; `offsets` is the window of a sample: the frames it needs, relative to its own.

    Attributes:
        left: How often each frame is still to be delivered.
        now: How often the batches being built still deliver each frame that they need.
        num_left: The sum of `left`.
        unfetched: Ranges [first, stop) of frames whose bytes were not fetched yet; those of one
            range are fetched together.
    """

    __slots__ = (
        "_clock",
        "_delivered",
        "_offsets",
        "_span",
        "_uses",
        "_window",
        "left",
        "num_left",
        "unfetched",
    )
    slots: list[int]

    def __init__(self, clip: Clip, clock: Clock, delivered: Deliveries, offsets: Ints) -> None:
        count = len(clip.numbers)
        super().__init__(clip, {}, [-1] * count)
        self._clock = clock
        self._delivered = delivered
        self._offsets = offsets
        self._window: list[int] = offsets.tolist()
        self._uses: Ints | None = None
        self._span = int(delivered.steps.max()) + 2
        frames = self._frames()
        self.left: list[int] = np.bincount(frames.ravel(), minlength=count).tolist()
        self.num_left = frames.size
        cut = min(max(delivered.split - clip.first, 0), count)
        self.unfetched = [(0, cut), (cut, count)] if 0 < cut < count else [(0, count)]

    def want(self, frame: int) -> list[int]:
        """Return the clip's frames in the window of a frame of the episode, counted as needed now.

        Frames beyond an end of the clip are its first or last frame.
        """
        at, last, now = frame - self.clip.first, len(self.left) - 1, self.now
        frames = list(map(at.__add__, self._window))
        if min(frames) < 0 or max(frames) > last:
            frames = [min(max(wanted, 0), last) for wanted in frames]
        for wanted in frames:
            now[wanted] = now.get(wanted, 0) + 1
        return frames

    def is_due_later(self, frame: int) -> bool:
        """Return whether batches after those being built deliver a frame too."""
        return self.now.get(frame, 0) < self.left[frame]

    def deliver(self, frames: list[int]) -> list[int]:
        """Count frames as delivered; return those that are not delivered again."""
        left, now = self.left, self.now
        done = []
        for frame in frames:
            left[frame] -= 1
            if not left[frame]:
                done.append(frame)
            if now.get(frame, 0) > 1:
                now[frame] -= 1
            else:
                now.pop(frame, None)
        self.num_left -= len(frames)
        return done

    def missing(self, first: int, stop: int) -> list[int]:
        """Return the frames of [first, stop) that are still to be delivered and not cached."""
        left, slots = self.left, self.slots
        stop = min(stop, len(left))
        return [frame for frame in range(first, stop) if left[frame] and slots[frame] < 0]

    def with_gop(self, frame: int) -> list[int]:
        """Return a missing frame, and others of its GOP that are missing.

        In a short GOP, most of the cost is the first frame; decoding the others later would decode
        it again. In a long GOP only the frame itself is decoded: the others follow when decoding
        ahead reaches them. If it never does, they are decoded now too.
        """
        if self.clip.has_long_gops and not self._delivered.is_behind:
            return [frame]
        first, stop = self.clip.gop_of(frame)
        return self.missing(first, stop)

    def fetch(self, frames: list[int]) -> None:
        """Fetch the bytes of frames before they are decoded, and of the frames around them."""
        file, numbers = self.clip.file, self.clip.numbers
        for first, stop in list(self.unfetched):
            if any(first <= frame < stop for frame in frames):
                file.source.ensure_cached(*packet_span(file.index, numbers[first:stop]))
                self.unfetched.remove((first, stop))

    def due(self, frames: Ints) -> Ints:
        """Return in how many steps each frame is delivered next; NEVER if not again."""
        uses, now = self._all_uses(), self._clock.step
        places = np.searchsorted(uses, frames * self._span + min(now, self._span - 1))
        found = uses[np.minimum(places, len(uses) - 1)]
        there = (places < len(uses)) & (found // self._span == frames)
        return np.where(there, found % self._span - now, NEVER)

    def due_of(self, frame: int) -> int:
        """Return the same for one frame."""
        uses, now = self._all_uses(), self._clock.step
        place = bisect_left(uses, frame * self._span + min(now, self._span - 1))
        found, step = divmod(int(uses[place]), self._span) if place < len(uses) else (-1, 0)
        return step - now if found == frame else NEVER

    def _all_uses(self) -> Ints:
        """Return frame * span + step for each frame and step that delivers it, ascending."""
        if self._uses is None:
            self._uses = np.unique(self._frames() * self._span + self._delivered.steps[:, None])
        return self._uses

    def _frames(self) -> Ints:
        """Return the clip's frames in the window of each sample."""
        at = self._delivered.samples[:, None] + (self._offsets - self.clip.first)
        frames: Ints = np.minimum(np.maximum(at, 0), len(self.slots) - 1)
        return frames


def needed_frames(samples: Ints | Sequence[int], offsets: Ints, length: int) -> tuple[int, int]:
    """Return the frames [first, stop) of an episode that the windows of samples lie in. Pure.

    Samples are ascending.
    """
    last = length - 1
    first = min(max(int(samples[0]) + int(offsets.min()), 0), last)
    return first, min(max(int(samples[-1]) + int(offsets.max()), 0), last) + 1
