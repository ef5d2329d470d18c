# SPDX-License-Identifier: Apache-2.0
"""How many lanes an order has, where nobody says. Pure."""

from __future__ import annotations

from math import lcm
from typing import Final

# Each has many divisors, so that usual world sizes divide it and share one order.
_CANDIDATES: Final = (240, 48, 24, 16, 12, 8, 6, 4, 3, 2, 1)
# Windows that reach across a cut are decoded on both sides of it, so cuts are to be few.
_EPISODES_PER_LANE: Final = 3
# A small selection is decoded once and kept, so there cuts cost nothing, and 1, 2, 3, 4, 6 or 12
# ranks share one order.
_FEWEST: Final = 12


def default_lanes(num_episodes: int, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes for a selection of `num_episodes` and `world_size` ranks. Pure.

    Without a shuffle there is one lane per rank, so that each rank reads a contiguous share.
    Otherwise the world size divides it, so that each rank has lanes of its own. 240 are enough to
    keep the 16 workers of each of 8 ranks evenly busy; where the selection is small there are
    fewer, so that a lane is a few episodes long.
    """
    if not shuffle:
        return world_size
    most = max(world_size, num_episodes // _EPISODES_PER_LANE, _FEWEST)
    fitting = (lcm(base, world_size) for base in _CANDIDATES)
    return next(lanes for lanes in fitting if lanes <= most or lanes == world_size)
