# SPDX-License-Identifier: Apache-2.0
"""How many episodes a batch mixes, and how many are open for it: expected, simulated, wanted."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robostream.plan import EpochPlan, Line

_Ints = npt.NDArray[np.int64]
# Places of each lane, and batches of the epoch, over which averages are taken.
_SAMPLES = 16
_BATCHES = 64
# Multiples of it, modulo 1, lie evenly spread however many there are.
_GOLDEN = 0.618034
# Keeps the logarithm of a miss finite.
_ALMOST_ALL = 1 - 1e-12


def uniform_distinct(lengths: _Ints, batch_size: int) -> float:
    """Return the distinct episodes expected in a batch drawn from the whole dataset. Pure."""
    shares = lengths / lengths.sum()
    return float((1 - (1 - shares) ** batch_size).sum())


def simulated_distinct(plan: EpochPlan, batch_size: int, *, step: int = 1) -> float:
    """Return the mean number of distinct episodes in batches of the order itself. Pure.

    A rank's batches are those with a step of the world size.
    """
    span = min(batch_size * step, plan.num_frames)
    starts = np.linspace(0, plan.num_frames - span, _BATCHES).astype(int).tolist()
    batches = [plan.slice(start, start + span, step)[0] for start in starts]
    return float(np.mean([np.unique(episodes).size for episodes in batches]))


def expected_distinct(plan: EpochPlan, batch_size: int, *, window: int) -> float:
    """Return the distinct episodes expected in a batch, in closed form. Pure.

    Each lane gives its share of the batch, drawn from `window` of its frames.
    """
    draws, extra = divmod(batch_size, plan.lanes)
    distinct = []
    # While a lane gives its draws, the window moves on by as many frames.
    for low, high in zip(*_windows(plan, window + draws), strict=True):
        slots, shares = _shares(plan.line, low, high)
        misses = np.log1p(-np.minimum(shares, _ALMOST_ALL)) * draws
        misses += np.log1p(-np.minimum(shares, _ALMOST_ALL) * (extra / plan.lanes))
        _, episodes = np.unique(slots, return_inverse=True)
        distinct.append((1 - np.exp(np.bincount(episodes, weights=misses))).sum())
    return float(np.mean(distinct))


def smallest_pool(plan: EpochPlan, batch_size: int, *, diversity: float) -> int:
    """Return the smallest pool whose batches reach a share of the uniform diversity. Pure.

    At most the number of episodes, which is a uniform shuffle of every lane.
    """
    lengths = np.diff(plan.line.starts)
    wanted = diversity * uniform_distinct(lengths, batch_size)

    def enough(pool_size: int) -> bool:
        window = plan.window_of(pool_size)
        return expected_distinct(plan, batch_size, window=window) >= wanted

    low, high = 0, 1
    while high < plan.num_episodes and not enough(high):
        low, high = high, min(2 * high, plan.num_episodes)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def resident_episodes(plan: EpochPlan, lanes: range) -> tuple[float, int]:
    """Return the mean and the most episodes open at a time in these lanes. Pure.

    An episode is open from its first to its last frame delivered: as long as it shares a frame with
    the window of its lane.
    """
    wanted = np.isin(plan.lane_spans()[0], lanes)
    counts = []
    for low, high in zip(*_windows(plan, plan.window), strict=True):
        first = np.searchsorted(plan.line.starts, low[wanted], side="right")
        last = np.searchsorted(plan.line.starts, high[wanted] - 1, side="right")
        # An episode that lies in two lanes is one episode.
        shared = np.maximum(last[:-1] - first[1:] + 1, 0)
        counts.append(int((last - first + 1).sum() - shared.sum()))
    return float(np.mean(counts)), max(counts)


def _windows(plan: EpochPlan, window: int) -> tuple[_Ints, _Ints]:
    # Line places [low, high) of the window of each lane in line order, at several moments (rows).
    _, starts, stops = plan.lane_spans()
    lengths = np.minimum(window, stops - starts)
    # Lanes are entered at random, so at any moment their windows are differently far along.
    phases = np.arange(_SAMPLES)[:, np.newaxis] / _SAMPLES + np.arange(starts.size) * _GOLDEN
    lows = starts + (phases % 1 * (stops - starts - lengths)).astype(np.int64)
    return lows, lows + lengths


def _shares(line: Line, low: _Ints, high: _Ints) -> tuple[_Ints, npt.NDArray[np.float64]]:
    # The episodes, as slots of the line, in each stretch [low, high), and their shares of it.
    first = np.searchsorted(line.starts, low, side="right") - 1
    numbers = np.searchsorted(line.starts, high, side="left") - first
    begins = np.cumsum(numbers) - numbers
    slots = np.arange(numbers.sum()) + np.repeat(first - begins, numbers)
    low, high = np.repeat(low, numbers), np.repeat(high, numbers)
    frames = np.minimum(line.starts[slots + 1], high) - np.maximum(line.starts[slots], low)
    return slots, frames / (high - low)
