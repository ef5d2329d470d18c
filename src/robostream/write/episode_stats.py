# SPDX-License-Identifier: Apache-2.0
"""Statistics of columns and cameras, and their aggregation over episodes. Pure.

Which images of an episode are sampled depends on its length, known only at its end. Until then, a
small summary of every image is kept: a colour image's exact histograms, or a depth image's moments
and 4096 quantiles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.meta import Stats

MOMENTS = ("min", "max", "mean", "std", "count")
QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
NO_STATS_DTYPES = ("string", "language")

_LEVELS = 256
_COLOURS = 3
_POINTS = 4096
_MAX_SAMPLES = 10_000
_MIN_SAMPLES = 100
_STRIDED_FROM = 300
_STRIDED_TO = 150

Array = npt.NDArray[Any]
FeatureStats = dict[str, Array]


class Summary(NamedTuple):
    """How a kind of camera is summarised: a value per image, and statistics of those values."""

    dtype: np.dtype[Any]
    summarise: Callable[[Array], Array]
    stats: Callable[[Array], FeatureStats]


def column_stats(values: Array) -> FeatureStats:
    """Return the statistics of one column of an episode, frames along the first axis.

    They are taken per entry of the last axis, over all other axes; `count` is the frames. All
    others are float64 for every dtype, so that the episode table has one type per column.
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
        **{name: ordered[rank] for name, rank in _quantile_ranks(len(ordered)).items()},
    }


def as_lists(stats: FeatureStats) -> dict[str, Any]:
    """Return a feature's statistics as nested lists, for JSON."""
    return {name: value.tolist() for name, value in stats.items()}


def aggregate_stats(parts: Sequence[Mapping[str, FeatureStats]]) -> Stats:
    """Return the statistics of all parts together, features in order of first appearance.

    Mean and deviation are exact. Quantiles of the whole do not follow from those of the parts, so
    they are bounds: the smallest of the parts up to the median, the largest above it.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: _aggregate([part[name] for part in parts if name in part]) for name in names}


def sampled_frames(num_frames: int) -> npt.NDArray[np.intp]:
    """Return the frames of an episode whose images are sampled, evenly spaced."""
    count = max(min(_MIN_SAMPLES, num_frames), min(int(num_frames**0.75), _MAX_SAMPLES))
    return np.round(np.linspace(0, num_frames - 1, count)).astype(np.intp)


def summarise_colour(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the histograms of the channels of an HWC image."""
    counts = Image.fromarray(_downsample(image)).histogram()
    return np.array(counts, dtype=np.uint32).reshape(_COLOURS, _LEVELS)


def summarise_depth(image: npt.NDArray[np.uint16] | npt.NDArray[np.float32]) -> Array:
    """Return moments and evenly spaced quantiles of an HW depth image, in its own unit."""
    values = np.sort(_downsample(image).ravel())
    ranks = (np.arange(_POINTS) * 2 + 1) * len(values) // (2 * _POINTS)
    exact = values.astype(np.float64)
    summary = (values[0], values[-1], exact.mean(), np.mean(exact**2), values[ranks])
    return np.array(summary, DEPTH.dtype)


def colour_stats(summaries: npt.NDArray[np.uint32]) -> FeatureStats:
    """Return a colour camera's statistics from its sampled summaries, on a scale of 0 to 1."""
    counts = summaries.sum(axis=0, dtype=np.int64)
    levels = np.arange(_LEVELS) / (_LEVELS - 1)
    total = int(counts[0].sum())
    cumulative = counts.cumsum(axis=1)
    mean = counts @ levels / total
    variance = counts @ levels**2 / total - mean**2
    return {
        "min": _per_channel([levels[np.flatnonzero(channel)[0]] for channel in counts]),
        "max": _per_channel([levels[np.flatnonzero(channel)[-1]] for channel in counts]),
        "mean": _per_channel(mean),
        "std": _per_channel(np.sqrt(np.maximum(variance, 0))),
        "count": np.array([len(summaries)]),
        **{
            name: _per_channel([levels[np.searchsorted(c, rank, side="right")] for c in cumulative])
            for name, rank in _quantile_ranks(total).items()
        },
    }


def depth_stats(summaries: Array) -> FeatureStats:
    """Return a depth camera's statistics from its sampled summaries, in its own unit.

    Quantiles are exact to a 4096th of the pixels of each image; the other statistics are exact.
    """
    points = np.sort(summaries["points"].ravel())
    mean = summaries["mean"].mean()
    return {
        "min": _per_channel(summaries["min"].min()),
        "max": _per_channel(summaries["max"].max()),
        "mean": _per_channel(mean),
        "std": _per_channel(np.sqrt(max(summaries["square"].mean() - mean**2, 0))),
        "count": np.array([len(summaries)]),
        **{n: _per_channel(points[rank]) for n, rank in _quantile_ranks(len(points)).items()},
    }


COLOUR = Summary(np.dtype((np.uint32, (_COLOURS, _LEVELS))), summarise_colour, colour_stats)
DEPTH = Summary(
    np.dtype(
        [(name, np.float64) for name in ("min", "max", "mean", "square")]
        + [("points", np.float32, (_POINTS,))]
    ),
    summarise_depth,
    depth_stats,
)


def _quantile_ranks(count: int) -> dict[str, int]:
    """Return the rank, in `count` sorted values, of the first value that reaches each quantile."""
    return {name: max(0, math.ceil(share * count) - 1) for name, share in QUANTILES.items()}


def _per_channel(values: npt.ArrayLike) -> Array:
    return np.asarray(values, np.float64).reshape(-1, 1, 1)


def _downsample(image: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    larger = max(image.shape[:2])
    if larger < _STRIDED_FROM:
        return image
    step = larger // _STRIDED_TO
    return np.ascontiguousarray(image[::step, ::step])


def _aggregate(parts: Sequence[FeatureStats]) -> FeatureStats:
    means = np.stack([part["mean"] for part in parts])
    deviations = np.stack([part["std"] for part in parts])
    counts = np.array([int(part["count"][0]) for part in parts])
    weights = (counts / counts.sum()).reshape(-1, *[1] * (means.ndim - 1))
    mean = (means * weights).sum(axis=0)
    variance = ((deviations**2 + (means - mean) ** 2) * weights).sum(axis=0)
    # Older datasets have no quantiles. If a part has none, the whole has none.
    shared = [name for name in QUANTILES if all(name in part for part in parts)]
    return {
        "min": np.min([part["min"] for part in parts], axis=0),
        "max": np.max([part["max"] for part in parts], axis=0),
        "mean": mean,
        "std": np.sqrt(variance),
        "count": np.array([counts.sum()]),
        **{
            name: (np.min if QUANTILES[name] <= 0.5 else np.max)([p[name] for p in parts], axis=0)
            for name in shared
        },
    }
