# SPDX-License-Identifier: Apache-2.0
"""Statistics of an episode's columns, and of many episodes together. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.meta import Stats

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
NAMES = ("min", "max", "mean", "std", "count", *QUANTILES)
NO_STATS_DTYPES = ("string", "language")

Array = npt.NDArray[Any]
FeatureStats = dict[str, Array]


def column_stats(values: Array) -> FeatureStats:
    """Return the statistics of one column of an episode, frames along the first axis.

    They are taken per entry of the last axis, over all other axes; `count` is the frames. All but
    `count` are float64, also for integers, booleans and episodes of a single frame, so that the
    episode table has one type per column.
    """
    frames = values.shape[0]
    flat = values.reshape(frames, 1) if values.ndim == 1 else values.reshape(-1, values.shape[-1])
    numbers = flat.astype(np.float64)
    ordered = np.sort(numbers, axis=0)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": numbers.mean(axis=0),
        "std": numbers.std(axis=0),
        "count": np.array([frames]),
        **{name: ordered[quantile_rank(q, len(ordered))] for name, q in QUANTILES.items()},
    }


def quantile_rank(quantile: float, count: int) -> int:
    """Return the rank of the smallest value that has at least that share of values up to it."""
    return max(0, math.ceil(quantile * count) - 1)


def aggregate_stats(parts: Sequence[Mapping[str, FeatureStats]]) -> Stats:
    """Return the statistics of all parts together, in the order features first appear.

    Mean and deviation are exact. The quantiles of the whole do not follow from those of the parts.
    For quantiles up to the median the smallest of the parts is taken, above it the largest, so that
    the true quantiles lie between them.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: _aggregate([part[name] for part in parts if name in part]) for name in names}


def _aggregate(parts: Sequence[FeatureStats]) -> FeatureStats:
    means = np.stack([part["mean"] for part in parts])
    deviations = np.stack([part["std"] for part in parts])
    counts = np.array([int(part["count"][0]) for part in parts])
    weights = (counts / counts.sum()).reshape(-1, *[1] * (means.ndim - 1))
    mean = (means * weights).sum(axis=0)
    variance = ((deviations**2 + (means - mean) ** 2) * weights).sum(axis=0)
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([counts.sum()]),
        **_enclosing_quantiles(parts),
    }


def _enclosing_quantiles(parts: Sequence[FeatureStats]) -> FeatureStats:
    # Older datasets have no quantiles. If one part has none, nothing is known about the whole.
    shared = [name for name in QUANTILES if all(name in part for part in parts)]
    return {
        name: (np.min if QUANTILES[name] <= 0.5 else np.max)([p[name] for p in parts], axis=0)
        for name in shared
    }
