# SPDX-License-Identifier: Apache-2.0
"""Where everything random comes from: one independent stream per purpose, seed and episode."""

from __future__ import annotations

import enum

import numpy as np


class Stream(enum.IntEnum):
    """What randomness is for; the numbers are part of what a seed means."""

    TASKS = 1
    SCRIPT = 2
    ROOM = 3
    NOISE = 4
    EXPOSURE = 5
    LENGTH = 6
    JOLT = 7
    NOISE_SHIFT = 8


def chance(stream: Stream, *place: int) -> np.random.Generator:
    """Return the generator of a purpose at a place: the seed, then the episode and so on. Pure."""
    return np.random.default_rng([stream, *place])
