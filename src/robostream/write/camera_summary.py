# SPDX-License-Identifier: Apache-2.0
"""A small summary of each image, and a camera's statistics made of summaries. Pure.

Which images of an episode count for the statistics depends on its length, and so is known only at
its end. Until then, a summary of each image is kept: of a colour image its exact histograms, of a
depth image its moments and 4096 quantiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from robostream.write.episode_stats import QUANTILES, FeatureStats, quantile_rank

_LEVELS = 256
_COLOURS = 3
_POINTS = 4096
_MAX_SAMPLES = 10_000
_MIN_SAMPLES = 100
_STRIDED_FROM = 300
_STRIDED_TO = 150

COLOUR_SUMMARY = np.dtype((np.uint32, (_COLOURS, _LEVELS)))
DEPTH_SUMMARY = np.dtype(
    [(name, np.float64) for name in ("min", "max", "mean", "square")]
    + [("points", np.float32, (_POINTS,))]
)


def sampled_frames(num_frames: int) -> npt.NDArray[np.intp]:
    """Return the frames of an episode whose images count, evenly spaced over all of it."""
    count = max(min(_MIN_SAMPLES, num_frames), min(int(num_frames**0.75), _MAX_SAMPLES))
    return np.round(np.linspace(0, num_frames - 1, count)).astype(np.intp)


def summarise_colour(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the histograms of the channels of an HWC image."""
    counts = Image.fromarray(_strided(image)).histogram()
    return np.array(counts, dtype=np.uint32).reshape(_COLOURS, _LEVELS)


def summarise_depth(image: npt.NDArray[np.uint16] | npt.NDArray[np.float32]) -> npt.NDArray[Any]:
    """Return moments and evenly spaced quantiles of an HW depth image, in its own unit."""
    values = np.sort(_strided(image).ravel())
    places = (np.arange(_POINTS) * 2 + 1) * len(values) // (2 * _POINTS)
    exact = values.astype(np.float64)
    summary = (values[0], values[-1], exact.mean(), np.mean(exact**2), values[places])
    return np.array(summary, DEPTH_SUMMARY)


def colour_stats(summaries: npt.NDArray[np.uint32]) -> FeatureStats:
    """Return the statistics of the sampled images of a colour camera, on a scale of 0 to 1."""
    counts = summaries.sum(axis=0, dtype=np.int64)
    levels = np.arange(_LEVELS) / (_LEVELS - 1)
    total = int(counts[0].sum())
    below = counts.cumsum(axis=1)
    mean = counts @ levels / total
    variance = counts @ levels**2 / total - mean**2
    found = {
        "min": [levels[np.flatnonzero(channel)[0]] for channel in counts],
        "max": [levels[np.flatnonzero(channel)[-1]] for channel in counts],
        "mean": mean,
        "std": np.sqrt(np.maximum(variance, 0)),
        **{name: levels[_first_reaching(below, q, total)] for name, q in QUANTILES.items()},
    }
    return _per_channel(found, len(summaries))


def depth_stats(summaries: npt.NDArray[Any]) -> FeatureStats:
    """Return the statistics of the sampled images of a depth camera, in its own unit.

    Quantiles are exact to a 4096th of the pixels of each image; the other statistics are exact.
    """
    points = np.sort(summaries["points"].ravel())
    mean = summaries["mean"].mean()
    found = {
        "min": [summaries["min"].min()],
        "max": [summaries["max"].max()],
        "mean": [mean],
        "std": [np.sqrt(max(summaries["square"].mean() - mean**2, 0))],
        **{name: [points[quantile_rank(q, len(points))]] for name, q in QUANTILES.items()},
    }
    return _per_channel(found, len(summaries))


def _first_reaching(
    below: npt.NDArray[np.int64], quantile: float, total: int
) -> npt.NDArray[np.intp]:
    rank = quantile_rank(quantile, total)
    return np.array([np.searchsorted(channel, rank, side="right") for channel in below])


def _per_channel(found: Mapping[str, npt.ArrayLike], num_images: int) -> FeatureStats:
    shaped = {name: np.asarray(v, np.float64).reshape(-1, 1, 1) for name, v in found.items()}
    order = ["min", "max", "mean", "std"]
    return {
        **{name: shaped[name] for name in order},
        "count": np.array([num_images]),
        **{name: shaped[name] for name in QUANTILES},
    }


def _strided(image: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    height, width = image.shape[:2]
    larger = max(height, width)
    if larger < _STRIDED_FROM:
        return image
    step = larger // _STRIDED_TO
    return np.ascontiguousarray(image[::step, ::step])
