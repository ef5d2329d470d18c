# SPDX-License-Identifier: Apache-2.0
"""A reel: one camera's pictures of an episode, as far as one lane needs them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream.decode import PictureLayout, VideoFile
from robostream.plan import Ints

# A decoder in the middle of a GOP longer than this is kept to go on later; shorter GOPs are decoded
# whole.
_LONG_GOP_FRAMES = 16
NEVER = int(np.iinfo(np.int64).max)

Decoding = Iterator[tuple[int, int, Any]]


@dataclass(slots=True)
class Clock:
    """The step that is being built, of one iterator."""

    step: int = 0


class Reel:
    """Counts which pictures are still to be delivered, and says where the kept ones are.

    Pictures are numbered from the first one needed: picture 0 is frame `first` of the episode.

    Attributes:
        clock: When it is, for the iterator the reel belongs to.
        camera: The camera's number among those of a sample.
        episode: The episode.
        file: The video file.
        first: The episode's frame that is picture 0.
        numbers: The number of each picture in the file.
        left: How often each picture is still to be delivered.
        slots: Where each picture is kept; -1 where it is not.
        now: How often each picture is delivered by the batch being built.
        waiting: The sum of `left`.
        base: The place of picture 0 in a store that has one for every frame of the selection.
        is_behind: Whether it lies wholly behind where its lane was entered, so that decoding along
            the line never comes by.
        layout: How kept pictures lie in memory, once the first was decoded.
        decoding: A decoder in the middle of a long run, and `decoding_at`, the picture it gives
            next.
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
        """Return the picture with a number of the file; -1 if it is none of the reel's."""
        if self._base is not None:
            picture = number - self._base
            return picture if 0 <= picture < len(self.left) else -1
        if not self._places:
            self._places = {n: p for p, n in enumerate(self.numbers.tolist())}
        return self._places.get(number, -1)

    def missing(self, first: int, stop: int) -> list[int]:
        """Return the pictures of [first, stop) that are to be delivered and not kept."""
        left, slots = self.left, self.slots
        stop = min(stop, len(left))
        return [p for p in range(first, stop) if left[p] and slots[p] < 0]

    def due(self, pictures: Ints) -> Ints:
        """Return in how many steps each picture is delivered next, NEVER if not any more."""
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
    """Return whether the GOPs of a reel's file are so long that decoders are kept in them."""
    index = reel.file.index
    return index.num_frames > _LONG_GOP_FRAMES * len(index.starts)
