# SPDX-License-Identifier: Apache-2.0
"""The pace of decoding along a lane: up to which frame it should have come. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

# Decoding goes on by this many frames at a time: enough to feed a decoder in one go, few enough
# that workers that wait for each other wait little.
PORTION_FRAMES = 8
# While decoding catches up, it gains one frame for each so many that leave.
_CATCH_UP = 2


def margin_frames(window: int) -> int:
    """Return how many frames decoding keeps before the head of a lane. Pure.

    The head is at most a few square roots of the window away from an even pace.
    """
    return min(2 * isqrt(window) + 2 * PORTION_FRAMES, window)


@dataclass(frozen=True, slots=True)
class Pace:
    """Up to which frame of one lane decoding should have come.

    Decoding moves along the line by one frame for each frame that leaves, so every worker has
    about the same to do for every batch. The head does not move so evenly: it jumps, because
    frames leave at random. So decoding keeps a margin before the head, and goes up to the head
    where the margin was too small.

    Attributes:
        first_head: The head of the lane when the iterator began.
        margin: How many frames decoding keeps before an evenly moving head.
        behind: How many frames short of that decoding begins; it catches up while frames leave.
            Where it begins before the first head (`behind > margin`), the head may be past it until
            it has caught up: the pictures in between are decoded when they fall due.
    """

    first_head: int
    margin: int
    behind: int

    def goal(self, head: int, passed: int) -> int:
        """Return up to which frame, exclusive, decoding should have come. Pure.

        Args:
            head: One past the furthest frame of the lane that was delivered.
            passed: How many frames have left the lane since the iterator began.
        """
        # Frames of quarantined episodes leave without being counted, but the head moves on.
        passed = max(passed, head - self.first_head - self.margin)
        lag = max(0, self.behind - passed // _CATCH_UP)
        goal = self.first_head + passed + self.margin - lag
        is_catching_up = lag > 0 and self.behind > self.margin
        return goal if is_catching_up else max(goal, head)


def is_portion_due(ahead: int, head: int, goal: int) -> bool:
    """Return whether decoding, which has come to `ahead`, goes on to its goal now. Pure.

    It does so once a whole portion is missing, or a frame before the head.
    """
    return goal >= ahead + PORTION_FRAMES or ahead < head <= goal
