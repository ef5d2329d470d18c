# SPDX-License-Identifier: Apache-2.0
"""When each picture of an episode is needed: the future, known from the plan. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.assemble import window_targets
from robostream.decode import NEVER
from robostream.plan import Cut

Ints = npt.NDArray[np.int64]
# The store asks again once it has seen these uses of a frame. It is told two more than a window
# has, so that it sees that no more are to come after the one that is being served.
_USES_TOLD = 10


def own_positions(positions: Ints, cut: Cut, *, start: int, worker: int, num_workers: int) -> Ints:
    """Return `positions` with NEVER where another rank, another worker or the past has them. Pure.

    Args:
        positions: The position of each frame of an episode.
        cut: How the ranks share the order.
        start: The position at which this run of the epoch began.
        worker: The number of this worker process.
        num_workers: How many there are; each builds one step in as many.
    """
    mine = (positions % cut.world_size == cut.rank) & (positions >= start)
    mine &= (positions - start) // cut.step_size % num_workers == worker
    return np.where(mine, positions, NEVER)


@dataclass(frozen=True, slots=True, eq=False)
class FrameUses:
    """At which positions each frame of an episode is needed, for one window.

    One ascending array holds frame * span + position for every use, so that the next uses of many
    frames are one binary search. `columns` is the most uses told of one frame.
    """

    keys: Ints
    span: int
    columns: int

    def after(self, frames: Ints, position: int) -> Ints:
        """Return the first uses of each frame after a position, a row each, filled with NEVER."""
        if len(self.keys) == 0:
            return np.full((len(frames), self.columns), NEVER)
        wanted = frames * self.span + min(max(position, -1), self.span - 1)
        places = np.searchsorted(self.keys, wanted, side="right")[:, None] + np.arange(self.columns)
        found = self.keys[np.minimum(places, len(self.keys) - 1)]
        there = (places < len(self.keys)) & (found // self.span == frames[:, None])
        return np.where(there, found % self.span, NEVER)


def frame_uses(offsets: Ints, positions: Ints) -> FrameUses:
    """Return the uses of an episode's frames by samples at `positions` (NEVER: not ours). Pure.

    Args:
        offsets: The window: the frames, relative to its own, that a sample takes.
        positions: The position of each sample of the episode, by frame.
    """
    columns = min(len(offsets) + 2, _USES_TOLD)
    ours = np.flatnonzero(positions != NEVER)
    if len(ours) == 0:
        return FrameUses(np.empty(0, np.int64), 1, columns)
    targets, _ = window_targets(offsets, ours[:, None], len(positions))
    span = int(positions[ours].max()) + 1
    return FrameUses(np.unique(targets * span + positions[ours, None]), span, columns)
