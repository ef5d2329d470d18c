# SPDX-License-Identifier: Apache-2.0
"""How well an order is shuffled: measured for ours, and for what others do.

The others are simulated frame by frame: a uniform permutation, the episode pool of LeRobot's
streaming reference (one worker, its files read in turn, a frame drawn from all that remain in the
pool), and a plain shuffle buffer over the dataset in its own order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.plan import EpochPlan
from robostream.tools.diversity import uniform_distinct

_Ints = npt.NDArray[np.int64]
# Files the reference reads in turn.
_STREAMS = 16


@dataclass(frozen=True, slots=True)
class ShuffleQuality:
    """How well one order is shuffled.

    Attributes:
        method: How the order was made.
        pool_size: Episodes mixed at a time (for the buffer, its size in mean episodes).
        distinct: Mean number of distinct episodes in a batch.
        diversity: The same as a share of what a uniform shuffle is expected to have.
        gap: Mean number of positions from a sample to the next of its episode, which is also the
            mean number of episodes open at a time: the price. Gaps of more than half the epoch
            are left out: they are those of an episode that the epoch's ends part.
        correlation: Correlation of place in the order with place in the dataset, from -1 to 1.
    """

    method: str
    pool_size: int
    distinct: float
    diversity: float
    gap: float
    correlation: float


def measure_methods(
    lengths: _Ints, *, batch_size: int, lanes: int, pool_sizes: list[int], seed: int
) -> Iterator[ShuffleQuality]:
    """Yield the quality of every method at every pool size."""
    everything = lengths.size

    def measured(method: str, pool_size: int, order: _Ints) -> ShuffleQuality:
        return measure(order, lengths, method=method, pool_size=pool_size, batch_size=batch_size)

    for pool in pool_sizes:
        yield measured("robostream", pool, planned_order(lengths, pool, lanes=lanes, seed=seed))
    for pool in pool_sizes:
        yield measured("reference pool", pool, pool_order(lengths, pool, seed=seed))
    for pool in pool_sizes:
        yield measured("shuffle buffer", pool, buffer_order(lengths, pool, seed=seed))
    yield measured("uniform", everything, uniform_order(lengths, seed=seed))


def made_up_lengths(num_episodes: int, mean_length: int, *, seed: int) -> _Ints:
    """Return episode lengths spread as those of real recordings: most near the mean, some long."""
    spread = 0.5
    scale = np.log(mean_length) - spread**2 / 2
    lengths = np.random.default_rng(seed).lognormal(scale, spread, num_episodes)
    return np.maximum(lengths.round(), 1).astype(np.int64)


def measure(
    order: _Ints, lengths: _Ints, *, method: str, pool_size: int, batch_size: int
) -> ShuffleQuality:
    """Return the quality of an order, given as the dataset's frame index at each position. Pure."""
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
    """Return the order of a pool that admits whole episodes and is drawn from evenly. Pure."""
    starts = np.cumsum(lengths) - lengths
    episode_of = np.repeat(np.arange(lengths.size), lengths)
    waiting = iter(_in_turn(lengths.size))
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
    """Return the order of a buffer of as many frames as the pool has on average. Pure."""
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


def _in_turn(num_episodes: int) -> list[int]:
    # The episodes lie in files one after the other; the files are read in turn.
    files = np.array_split(np.arange(num_episodes), _STREAMS)
    longest = max(file.size for file in files)
    return [int(file[i]) for i in range(longest) for file in files if i < file.size]
