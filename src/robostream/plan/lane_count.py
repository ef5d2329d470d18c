# SPDX-License-Identifier: Apache-2.0
"""How many lanes an order has, where the user gives no number. Pure."""

from __future__ import annotations

from math import lcm
from typing import Final

# Numbers with many divisors: usual world sizes divide them, and so have the same order.
_CANDIDATES: Final = (240, 48, 24, 16, 12, 8, 6, 4, 3, 2, 1)
# A sample's window may reach from one lane into the next; its pictures are then decoded for both.
# So lanes are to be some episodes long.
_EPISODES_PER_LANE: Final = 3
# A small selection is decoded once and kept, so short lanes cost nothing there. With 12 lanes, runs
# on 1, 2, 3, 4, 6 or 12 ranks have the same order.
_FEWEST: Final = 12


def default_lanes(num_episodes: int, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes for a selection of `num_episodes` and `world_size` ranks. Pure.

    Without a shuffle there is one lane per rank, so that each rank reads one stretch of frames.
    With a shuffle it is a multiple of the world size, so that each rank has lanes of its own. 240
    lanes are enough to keep the 16 workers of each of 8 ranks evenly busy. Small selections have
    fewer, so that a lane is still a few episodes long.
    """
    if not shuffle:
        return world_size
    most = max(world_size, num_episodes // _EPISODES_PER_LANE, _FEWEST)
    fitting = (lcm(base, world_size) for base in _CANDIDATES)
    return next(lanes for lanes in fitting if lanes <= most or lanes == world_size)
