# SPDX-License-Identifier: Apache-2.0
"""The order written down plainly, in Python integers: what the fast code must equal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from robostream.plan import EpochPlan

MASK = (1 << 64) - 1
Pair = tuple[int, int]


def split_mix(key: int, index: int) -> int:
    """Word number `index` of the SplitMix64 generator that was seeded with `key`."""
    z = (key + (index + 1) * 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def key_of(*labels: int) -> int:
    key = 0
    for label in labels:
        key = split_mix(key ^ split_mix(label & MASK, 0), 0)
    return key


def lane_order(key: int, length: int, window: int, entry: int) -> list[int]:
    """All frames of a lane in the order they leave, by sorting four rounds of the circle."""
    tickets = []
    for frame in range(-length, 3 * length):
        hashed = split_mix(key, frame % length)
        delay = ((hashed >> 32) * window) >> 32
        tickets.append((frame + delay, hashed & 0x7FFFF, delay, frame))
    tickets.sort()
    leaving = [frame for leave, _, _, frame in tickets if leave >= 0]
    backlog = sum(frame < 0 for frame in leaving)
    first = backlog + entry
    return [frame % length for frame in leaving[first : first + length]]


def epoch_order(
    lengths: Sequence[int], *, seed: int, epoch: int, lanes: int, pool_size: int, shuffle: bool
) -> list[Pair]:
    """All (episode, frame) pairs of an epoch, in order."""
    episodes = [e for e, length in enumerate(lengths) if length]
    frames = sum(lengths)
    window = -(-pool_size * frames // (lanes * len(episodes))) if shuffle else 1
    if shuffle:
        episodes.sort(key=lambda e: split_mix(key_of(seed, epoch, 1), e))
    line = [(e, f) for e in episodes for f in range(lengths[e])]
    stride = max(1, 618 * lanes // 1000)
    while math.gcd(stride, lanes) != 1:
        stride += 1
    orders, start = {}, 0
    for lane in sorted(range(lanes), key=lambda n: n * stride % lanes if shuffle else n):
        length = -(-(frames - lane) // lanes)
        part = line[start : start + length]
        key = split_mix(key_of(seed, epoch, 2), lane)
        draw = split_mix(key_of(seed, epoch, 3), lane) >> 32
        entry = (draw * length) >> 32 if shuffle else 0
        order = lane_order(key, length, min(window, length), entry) if length else []
        orders[lane] = [part[x] for x in order]
        start += length
    return [orders[g % lanes][g // lanes] for g in range(frames)]


LENGTHS = st.lists(st.integers(0, 25), min_size=1, max_size=20).filter(any)
SETTINGS = st.fixed_dictionaries(
    {
        "seed": st.integers(-(2**70), 2**70),
        "epoch": st.integers(0, 4),
        "lanes": st.integers(1, 9),
        "pool_size": st.integers(1, 25),
        "shuffle": st.booleans(),
    }
)


def make_plan(lengths: Sequence[int], settings: dict[str, Any]) -> EpochPlan:
    return EpochPlan(lengths, **settings)


def pairs(plan: EpochPlan, start: int, stop: int, step: int = 1) -> list[Pair]:
    episodes, frames = plan.slice(start, stop, step)
    return list(zip(episodes.tolist(), frames.tolist(), strict=True))
