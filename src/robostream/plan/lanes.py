# SPDX-License-Identifier: Apache-2.0
"""The lanes of an epoch: how the line is cut into equal circles."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from math import gcd
from typing import Final

import numpy as np

from robostream.plan.lane import Lane
from robostream.plan.mix import Ints, Words, below, stream, words

_KEY_STREAM: Final = 2
_ENTRY_STREAM: Final = 3


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """A line cut into lanes; arrays have one entry per lane.

    Attributes:
        window: Over how many frames a lane is mixed, or all of it if shorter.
        lengths: The number of frames of each lane.
        starts: The place of its first frame on the line.
        keys: Its hash stream.
        entries: The turn at which it is entered.
        by_place: The numbers of the lanes in the order they lie on the line.
    """

    window: int
    lengths: Ints
    starts: Ints
    keys: Words
    entries: Ints
    by_place: Ints

    def lane(self, number: int) -> Lane:
        """Return one lane that has frames. Pure."""
        length = int(self.lengths[number])
        return Lane(
            key=int(self.keys[number]),
            length=length,
            window=min(self.window, length),
            entry=int(self.entries[number]),
        )

    def numbers_at(self, places: Ints) -> Ints:
        """Return the lane each place of the line is in. Pure."""
        return self.by_place[np.searchsorted(self.starts[self.by_place], places, "right") - 1]


def cut_lanes(
    num_frames: int, lanes: int, *, window: int, seed: int, epoch: int, shuffle: bool
) -> Lanes:
    """Return the lanes of a line of `num_frames` places. Pure.

    Lane l has ceil((num_frames - l) / lanes) frames: as many as positions are l modulo `lanes`.
    With a shuffle, lanes with near numbers lie far apart on the line, so that also a batch smaller
    than the number of lanes takes frames from all over it; and each lane is entered at a random
    frame. Without a shuffle, lanes lie in the order of their numbers and are entered at their first
    frame.
    """
    numbers = np.arange(lanes)
    lengths = (num_frames - numbers + lanes - 1) // lanes
    by_place = np.argsort(numbers * _stride(lanes) % lanes) if shuffle else numbers
    starts = np.empty_like(lengths)
    starts[by_place] = np.cumsum(lengths[by_place]) - lengths[by_place]
    draws = words(stream(seed, epoch, _ENTRY_STREAM), numbers)
    return Lanes(
        window=window,
        lengths=lengths,
        starts=starts,
        keys=words(stream(seed, epoch, _KEY_STREAM), numbers),
        entries=below(lengths if shuffle else 1, draws),
        by_place=by_place,
    )


def _stride(lanes: int) -> int:
    # Multiples of this number, modulo the number of lanes, meet every lane, because the two have no
    # common divisor. Any few multiples in a row are evenly spread, because it is near the golden
    # section of the number of lanes.
    return next(n for n in count(max(1, 618 * lanes // 1000)) if gcd(n, lanes) == 1)
