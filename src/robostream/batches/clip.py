# SPDX-License-Identifier: Apache-2.0
"""A reel: one camera's pictures of an episode that one lane delivers, and when."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.decode import FrameLayout, VideoFile
from robostream.plan import Ints

# Of a GOP that is no longer than this, few pictures wait for their delivery when one is decoded.
_TINY_GOP_FRAMES = 4
NEVER = int(np.iinfo(np.int64).max)

Decoding = Iterator[tuple[int, int, Any]]


@dataclass(slots=True)
class Clock:
    """The step that is being built, of one iterator."""

    step: int = 0


class Clip:
    """Knows how often and when each picture is still delivered, and where decoded ones are kept.

    This is the one place that says when a picture is wanted next (`due`). Pictures are numbered
    from the first one needed: picture 0 is frame `first` of the episode.

    Attributes:
        clock: The step that the reel's iterator is building.
        camera: The camera's number among those of a sample.
        episode: The episode.
        file: The video file.
        first: The episode's frame that is picture 0.
        numbers: The number of each picture in the file.
        left: How often each picture is still to be delivered.
        slots: The slot in which each picture is kept; -1 for one that is not kept.
        now: How often the batch being built delivers each picture.
        waiting: The sum of `left`.
        base: The number of picture 0 in a shelf that has a slot for every frame of the selection.
        is_whole: Whether GOPs are decoded whole, however long they are.
        is_behind: Whether all its frames lie before the frame where its lane was entered, so that
            decoding along the line never comes by.
        far: Ranges [first, stop) of pictures whose bytes were not brought close by yet; those of
            one range are brought together.
        layout: How kept pictures lie in memory; None until one was decoded.
        decoding: The decoder that is kept in the middle of a long GOP, if there is one.
        decoding_at: The picture that this decoder gives next.
    """

    __slots__ = (
        "_base",
        "_offsets",
        "_places",
        "_samples",
        "_span",
        "_steps",
        "_uses",
        "base",
        "camera",
        "clock",
        "decoding",
        "decoding_at",
        "episode",
        "far",
        "file",
        "first",
        "is_behind",
        "is_whole",
        "layout",
        "left",
        "now",
        "numbers",
        "slots",
        "waiting",
    )

    def __init__(
        self,
        clock: Clock,
        camera: int,
        episode: int,
        file: VideoFile,
        numbers: Ints,
        *,
        samples: Ints,
        steps: Ints,
        offsets: Ints,
    ) -> None:
        targets = np.clip(samples[:, None] + offsets, 0, len(numbers) - 1)
        self.clock = clock
        self.camera = camera
        self.episode = episode
        self.file = file
        self.first = int(targets.min())
        self.numbers = numbers[self.first : int(targets.max()) + 1]
        self.left: list[int] = np.bincount((targets - self.first).ravel()).tolist()
        self.slots = [-1] * len(self.left)
        self.now: dict[int, int] = {}
        self.waiting = targets.size
        self.far = [(0, len(self.left))]
        self.base = 0
        self.is_behind = False
        self.is_whole = False
        self.layout: FrameLayout | None = None
        self.decoding: Decoding | None = None
        self.decoding_at = 0
        self._samples = samples
        self._steps = steps
        self._offsets = offsets
        self._uses: Ints | None = None
        self._span = 1
        is_gapless = int(self.numbers[-1]) - int(self.numbers[0]) == len(self.numbers) - 1
        self._base = int(self.numbers[0]) if is_gapless else None
        self._places: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.left)

    def picture_of(self, number: int) -> int:
        """Return the picture that has a frame number in the file; -1 if the reel has none."""
        if self._base is not None:
            picture = number - self._base
            return picture if 0 <= picture < len(self.left) else -1
        if not self._places:
            self._places = {n: p for p, n in enumerate(self.numbers.tolist())}
        return self._places.get(number, -1)

    def numbers_of(self, pictures: list[int]) -> list[int]:
        """Return the frame numbers of pictures in the file."""
        base = self._base
        if base is None:
            return [int(self.numbers[picture]) for picture in pictures]
        return [base + picture for picture in pictures]

    def picture_from(self, number: int) -> int:
        """Return the first picture that has a frame number, or a larger one, in the file."""
        if self._base is None:
            return bisect_left(self.numbers, number)
        return min(max(number - self._base, 0), len(self.left))

    def missing(self, first: int, stop: int) -> list[int]:
        """Return the pictures of [first, stop) that are still to be delivered and not kept."""
        left, slots = self.left, self.slots
        stop = min(stop, len(left))
        return [p for p in range(first, stop) if left[p] and slots[p] < 0]

    def due(self, pictures: Ints) -> Ints:
        """Return in how many steps each picture is delivered next; NEVER if it is not any more."""
        uses, now = self._all_uses(), self.clock.step
        places = np.searchsorted(uses, pictures * self._span + min(now, self._span - 1))
        found = uses[np.minimum(places, len(uses) - 1)]
        there = (places < len(uses)) & (found // self._span == pictures)
        return np.where(there, found % self._span - now, NEVER)

    def due_of(self, picture: int) -> int:
        """Return the same for one picture, without numpy, which is slow with single numbers."""
        uses, now = self._all_uses(), self.clock.step
        place = bisect_left(uses, picture * self._span + min(now, self._span - 1))
        found, step = divmod(int(uses[place]), self._span) if place < len(uses) else (-1, 0)
        return step - now if found == picture else NEVER

    def _all_uses(self) -> Ints:
        """Return picture * span + step for each picture and step it is delivered at, ascending."""
        if self._uses is None:
            last = self.first + len(self.left) - 1
            targets = np.clip(self._samples[:, None] + self._offsets, self.first, last)
            self._span = int(self._steps.max()) + 2
            self._uses = np.unique((targets - self.first) * self._span + self._steps[:, None])
        return self._uses


def is_long(reel: Clip) -> bool:
    """Return whether the GOPs of a reel's file are so long that decoders are kept inside them."""
    return not reel.is_whole and reel.file.index.has_long_gops


def is_tiny(reel: Clip) -> bool:
    """Return whether a GOP of a reel's file is hardly more than one picture."""
    index = reel.file.index
    return index.num_frames <= _TINY_GOP_FRAMES * len(index.starts)
