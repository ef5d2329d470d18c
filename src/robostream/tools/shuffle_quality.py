# SPDX-License-Identifier: Apache-2.0
"""How well an order is shuffled: episodes mixed per batch, beside what other methods achieve."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.errors import MissingExtraError
from robostream.plan import EpochPlan, Line

_Ints = npt.NDArray[np.int64]
# Averages use this many moments of each lane and this many batches of the epoch.
_SAMPLES = 16
_BATCHES = 64
# The golden ratio: its multiples, modulo 1, are evenly spread.
_GOLDEN = 0.618034
# Keeps the logarithm of a miss finite.
_ALMOST_ALL = 1 - 1e-12
# Files that the reference pool reads in turn.
_FILES = 16


def uniform_distinct(lengths: _Ints, batch_size: int) -> float:
    """Return the distinct episodes expected in a batch drawn from the whole dataset. Pure."""
    shares = lengths / lengths.sum()
    return float((1 - (1 - shares) ** batch_size).sum())


def simulated_distinct(plan: EpochPlan, batch_size: int, *, step: int = 1) -> float:
    """Return the mean number of distinct episodes in batches of the order. Pure.

    With `step` as the world size, these are the batches of one rank.
    """
    span = min(batch_size * step, plan.num_frames)
    starts = np.linspace(0, plan.num_frames - span, _BATCHES).astype(int).tolist()
    batches = [plan.slice(start, start + span, step)[0] for start in starts]
    return float(np.mean([np.unique(episodes).size for episodes in batches]))


def expected_distinct(plan: EpochPlan, batch_size: int, *, window: int) -> float:
    """Return the distinct episodes expected in a batch, in closed form. Pure.

    Each lane contributes its share of the batch, drawn from `window` of its frames.
    """
    draws, extra = divmod(batch_size, plan.lanes)
    distinct = []
    # During the draws, the window of a lane advances by as many frames.
    for low, high in zip(*_windows(plan, window + draws), strict=True):
        slots, shares = _shares(plan.line, low, high)
        misses = np.log1p(-np.minimum(shares, _ALMOST_ALL)) * draws
        misses += np.log1p(-np.minimum(shares, _ALMOST_ALL) * (extra / plan.lanes))
        _, episodes = np.unique(slots, return_inverse=True)
        distinct.append((1 - np.exp(np.bincount(episodes, weights=misses))).sum())
    return float(np.mean(distinct))


def smallest_pool(plan: EpochPlan, batch_size: int, *, diversity: float) -> int:
    """Return the smallest pool, of all episodes at most, that reaches a share of `uniform`."""
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
    """Return the mean and the maximum number of open episodes in these lanes. Pure.

    An episode is open from its first to its last frame, while it overlaps the window of its lane.
    """
    wanted = np.isin(plan.lane_spans()[0], lanes)
    counts = []
    for low, high in zip(*_windows(plan, plan.window), strict=True):
        first = np.searchsorted(plan.line.starts, low[wanted], side="right")
        last = np.searchsorted(plan.line.starts, high[wanted] - 1, side="right")
        # Count an episode in two lanes once.
        shared = np.maximum(last[:-1] - first[1:] + 1, 0)
        counts.append(int((last - first + 1).sum() - shared.sum()))
    return float(np.mean(counts)), max(counts)


def _windows(plan: EpochPlan, window: int) -> tuple[_Ints, _Ints]:
    # The window [low, high) of each lane on the line, in line order, at several moments (rows).
    _, starts, stops = plan.lane_spans()
    lengths = np.minimum(window, stops - starts)
    # An epoch enters each lane at a random point, so the windows have different phases.
    phases = np.arange(_SAMPLES)[:, np.newaxis] / _SAMPLES + np.arange(starts.size) * _GOLDEN
    lows = starts + (phases % 1 * (stops - starts - lengths)).astype(np.int64)
    return lows, lows + lengths


def _shares(line: Line, low: _Ints, high: _Ints) -> tuple[_Ints, npt.NDArray[np.float64]]:
    # The episodes in each range [low, high), as slots of the line, and their shares of it.
    first = np.searchsorted(line.starts, low, side="right") - 1
    numbers = np.searchsorted(line.starts, high, side="left") - first
    begins = np.cumsum(numbers) - numbers
    slots = np.arange(numbers.sum()) + np.repeat(first - begins, numbers)
    low, high = np.repeat(low, numbers), np.repeat(high, numbers)
    frames = np.minimum(line.starts[slots + 1], high) - np.maximum(line.starts[slots], low)
    return slots, frames / (high - low)


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """How well one order is shuffled."""

    method: str  # how the order was made
    pool_size: int  # episodes mixed at a time (for the buffer, its size in mean episodes)
    distinct: float  # mean number of distinct episodes in a batch
    diversity: float  # `distinct` as a share of what a uniform shuffle is expected to have
    # Mean positions from a sample to the next of its episode: the mean number of open episodes too.
    # Not counted: gaps of more than half the epoch, of episodes split between its two ends.
    gap: float
    correlation: float  # of position in the order with index in the dataset, from -1 to 1


def measure_methods(
    lengths: _Ints, *, batch_size: int, lanes: int, pool_sizes: list[int], seed: int
) -> Iterator[ShuffleQuality]:
    """Yield the quality of every method at every pool size."""
    methods: dict[str, Callable[..., _Ints]] = {
        "robostream": partial(planned_order, lanes=lanes),
        "reference pool": pool_order,
        "shuffle buffer": buffer_order,
    }
    for name, make in methods.items():
        for pool in pool_sizes:
            order = make(lengths, pool, seed=seed)
            yield measure(order, lengths, method=name, pool_size=pool, batch_size=batch_size)
    sizes = {"pool_size": lengths.size, "batch_size": batch_size}
    yield measure(uniform_order(lengths, seed=seed), lengths, method="uniform", **sizes)


def made_up_lengths(num_episodes: int, mean_length: int, *, seed: int) -> _Ints:
    """Return log-normal episode lengths: most near the mean, some long, as in real recordings."""
    spread = 0.5
    scale = np.log(mean_length) - spread**2 / 2
    lengths = np.random.default_rng(seed).lognormal(scale, spread, num_episodes)
    return np.maximum(lengths.round(), 1).astype(np.int64)


def measure(
    order: _Ints, lengths: _Ints, *, method: str, pool_size: int, batch_size: int
) -> ShuffleQuality:
    """Return the quality of an order, given as dataset frame indices by position. Pure."""
    batch_size = min(batch_size, order.size)
    episodes = np.repeat(np.arange(lengths.size), lengths)[order]
    whole = order.size // batch_size * batch_size
    batches = np.sort(episodes[:whole].reshape(-1, batch_size), axis=1)
    distinct = float((np.diff(batches, axis=1) != 0).sum(axis=1).mean() + 1)
    by_episode = np.argsort(episodes, kind="stable")
    gaps = np.diff(by_episode)[np.diff(episodes[by_episode]) == 0]
    gaps = gaps[gaps <= order.size // 2]
    return ShuffleQuality(
        method=method,
        pool_size=pool_size,
        distinct=distinct,
        diversity=distinct / uniform_distinct(lengths, batch_size),
        gap=float(gaps.mean()) if gaps.size else float(order.size),
        correlation=float(np.corrcoef(order, np.arange(order.size))[0, 1]),
    )


def planned_order(lengths: _Ints, pool_size: int, *, lanes: int, seed: int) -> _Ints:
    """Return robostream's order of an epoch. Pure."""
    plan = EpochPlan(lengths, seed=seed, epoch=0, lanes=lanes, pool_size=pool_size)
    episodes, frames = plan.slice(0, plan.num_frames)
    return (np.cumsum(lengths) - lengths)[episodes] + frames


def uniform_order(lengths: _Ints, *, seed: int) -> _Ints:
    """Return a uniform permutation of all frames. Pure."""
    return np.random.default_rng(seed).permutation(int(lengths.sum()))


def pool_order(lengths: _Ints, pool_size: int, *, seed: int) -> _Ints:
    """Return the order of a pool that admits whole episodes and yields frames evenly. Pure."""
    starts = np.cumsum(lengths) - lengths
    episode_of = np.repeat(np.arange(lengths.size), lengths)
    # Episodes are stored in consecutive files, which are read in turn.
    files = np.array_split(np.arange(lengths.size), _FILES)
    in_turn = chain.from_iterable(zip_longest(*(file.tolist() for file in files)))
    waiting = (episode for episode in in_turn if episode is not None)
    left = lengths.copy()
    pool: list[int] = []
    order = np.empty(episode_of.size, dtype=np.int64)

    def admit() -> None:
        episode = next(waiting, None)
        if episode is not None:
            pool.extend(range(starts[episode], starts[episode] + lengths[episode]))

    for _ in range(pool_size):
        admit()
    draws = np.random.default_rng(seed).random(order.size)
    for position, draw in enumerate(draws.tolist()):
        chosen = int(draw * len(pool))
        pool[chosen], pool[-1] = pool[-1], pool[chosen]
        order[position] = frame = pool.pop()
        left[episode_of[frame]] -= 1
        if left[episode_of[frame]] == 0:
            admit()
    return order


def buffer_order(lengths: _Ints, pool_size: int, *, seed: int) -> _Ints:
    """Return the order of a shuffle buffer as large as the pool is on average. Pure."""
    frames = int(lengths.sum())
    size = min(frames, round(pool_size * frames / lengths.size))
    buffer = list(range(size))
    order = np.empty(frames, dtype=np.int64)
    draws = np.random.default_rng(seed).random(frames)
    for position, draw in enumerate(draws.tolist()):
        chosen = int(draw * len(buffer))
        order[position] = buffer[chosen]
        if size < frames:
            buffer[chosen] = size
            size += 1
        else:
            buffer[chosen] = buffer[-1]
            buffer.pop()
    return order


def plot_qualities(qualities: Sequence[ShuffleQuality], batch_size: int, path: Path) -> None:
    """Draw diversity against pool size and against gap, one line per method, into `path`."""
    try:
        # Not pyplot, which looks for a display.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "the plot of shuffle quality") from error
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    _draw(left, qualities, "pool_size")
    _draw(right, qualities, "gap")
    labels = _label_points(right, qualities)
    left.set_ylabel(f"distinct episodes per batch of {batch_size},\nshare of a uniform shuffle")
    left.set_xlabel("pool size: episodes mixed at a time")
    right.set_xlabel("gap: samples to the next of its episode (numbers: pool size)")
    left.set_ylim(0, 1.12)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper center", ncols=4)
    figure.draw_without_rendering()  # places the labels
    _drop_overlapping(right, labels)
    figure.savefig(path)


def _draw(axes: Any, qualities: Sequence[ShuffleQuality], attribute: str) -> None:
    """Draw one line per method; each point is a pool size."""
    for method in dict.fromkeys(quality.method for quality in qualities):
        own = [quality for quality in qualities if quality.method == method]
        values = [getattr(quality, attribute) for quality in own]
        axes.plot(values, [quality.diversity for quality in own], marker="o", label=method)
    found = [getattr(quality, attribute) for quality in qualities]
    axes.set_xscale("log", base=2)
    axes.set_xticks([2**k for k in range(40) if min(found) / 2 < 2**k < max(found) * 2])
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.grid(alpha=0.3)


def _label_points(axes: Any, qualities: Sequence[ShuffleQuality]) -> list[Any]:
    """Write its pool size beside each point, in the colour and on the side of its line."""
    sides = (((0, 6), "center", "bottom"), ((5, -2), "left", "top"), ((-5, 3), "right", "bottom"))
    labels = []
    for line, (offset, horizontal, vertical) in zip(axes.get_lines(), sides, strict=False):
        for quality in qualities:
            if quality.method == line.get_label():
                place = (quality.gap, quality.diversity)
                look = {"color": line.get_color(), "ha": horizontal, "va": vertical}
                label = axes.annotate(
                    f"{quality.pool_size}", place, offset, textcoords="offset points", **look
                )
                labels.append(label)
    return labels


def _drop_overlapping(axes: Any, labels: Sequence[Any]) -> None:
    """Remove labels that would cover a line or an earlier label."""
    paths = [line.get_path().transformed(line.get_transform()) for line in axes.get_lines()]
    kept: list[Any] = []
    for label in labels:
        box = label.get_window_extent()
        if box.count_overlaps(kept) or any(
            path.intersects_bbox(box, filled=False) for path in paths
        ):
            label.remove()
        else:
            kept.append(box)
