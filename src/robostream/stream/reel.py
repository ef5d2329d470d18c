# SPDX-License-Identifier: Apache-2.0
"""A reel: one camera's pictures of an episode that one lane delivers, and when."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.decode import PictureLayout, VideoFile
from robostream.plan import Ints

# A GOP longer than this is decoded in several goes by a decoder that is kept in between. A shorter
# one is decoded whole.
_LONG_GOP_FRAMES = 16
NEVER = int(np.iinfo(np.int64).max)

Decoding = Iterator[tuple[int, int, Any]]


@dataclass(slots=True)
class Clock:
    """The step that is being built, of one iterator."""

    step: int = 0


class Reel:
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
        is_behind: Whether all its frames lie before the frame where its lane was entered, so that
            decoding along the line never comes by.
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
        "file",
        "first",
        "is_behind",
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
        self.base = 0
        self.is_behind = False
        self.layout: PictureLayout | None = None
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

    def missing(self, first: int, stop: int) -> list[int]:
        """Return the pictures of [first, stop) that are still to be delivered and not kept."""
        left, slots = self.left, self.slots
        stop = min(stop, len(left))
        return [p for p in range(first, stop) if left[p] and slots[p] < 0]

    def due(self, pictures: Ints) -> Ints:
        """Return in how many steps each picture is delivered next; NEVER if it is not any more."""
        if self._uses is None:
            last = self.first + len(self.left) - 1
            targets = np.clip(self._samples[:, None] + self._offsets, self.first, last)
            self._span = int(self._steps.max()) + 2
            self._uses = np.unique((targets - self.first) * self._span + self._steps[:, None])
        now = self.clock.step
        wanted = pictures * self._span + min(now, self._span - 1)
        places = np.searchsorted(self._uses, wanted)
        found = self._uses[np.minimum(places, len(self._uses) - 1)]
        there = (places < len(self._uses)) & (found // self._span == pictures)
        return np.where(there, found % self._span - now, NEVER)


def is_long(reel: Reel) -> bool:
    """Return whether the GOPs of a reel's file are so long that decoders are kept inside them."""
    index = reel.file.index
    return index.num_frames > _LONG_GOP_FRAMES * len(index.starts)
