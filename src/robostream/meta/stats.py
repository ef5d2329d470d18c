# SPDX-License-Identifier: Apache-2.0
"""Statistics of features as arrays: parsed, aggregated, converted to a depth unit, and computed.

Which images of an episode are sampled depends on its length, known only at its end. Until then, a
small summary of every image is kept: a colour image's exact histograms, or a depth image's moments
and 4096 quantiles.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.errors import MetadataError, MissingFileError
from robostream.meta.features import CAMERA_DTYPES, Features, is_depth, keys_of_dtype
from robostream.storage import FileOpener

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]
FeatureStats = dict[str, npt.NDArray[Any]]
"""The statistics of one feature by name: min, max, mean, std, count and quantiles."""
Stats = dict[str, FeatureStats]
"""The statistics of each feature."""

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
# numpy stores an array of texts with the length of the longest for each.
_MOST_LETTERS = 1 << 24
_SCALED_STATS = ("min", "max", "mean", "std", *QUANTILES)
MOMENTS = ("min", "max", "mean", "std", "count")
NO_STATS_DTYPES = ("string", "language")

_LEVELS = 256
_COLOURS = 3
_POINTS = 4096
_BLOCK_ROWS = 1 << 16
_MAX_SAMPLES = 10_000
_MIN_SAMPLES = 100
_STRIDED_FROM = 300
_STRIDED_TO = 150


def load_stats(opener: FileOpener) -> Stats | None:
    """Return the statistics of stats.json; None without that file."""
    try:
        text = opener.read_json(config.STATS_PATH)
    except MissingFileError:
        return None
    return parse_stats(text, opener.location.describe(config.STATS_PATH))


def parse_stats(text: str | bytes, where: str) -> Stats:
    """Return the statistics of stats.json as arrays of at least one axis."""
    try:
        return as_stats(json.loads(text))
    except (ValueError, AttributeError, RecursionError) as error:
        raise MetadataError(
            f"{where}: not a JSON object of statistics ({error}). Restore the file, or delete it: "
            "statistics are optional."
        ) from error


def as_stats(data: Mapping[str, Mapping[str, Any]]) -> Stats:
    """Return parsed JSON as arrays; raise ValueError or AttributeError if it has another form."""
    return {
        feature: {name: np.atleast_1d(_as_array(value)) for name, value in entry.items()}
        for feature, entry in data.items()
    }


def _as_array(value: Any) -> npt.NDArray[Any]:
    count, longest = _measure_texts(value)
    if count * longest > _MOST_LETTERS:
        raise ValueError(f"{count:,} values, one of them a text of {longest:,} letters")
    return np.asarray(value)


def _measure_texts(value: Any) -> tuple[int, int]:
    """Return the number of values, and the length of the longest text among them."""
    if not isinstance(value, list):
        return 1, len(value) if isinstance(value, str) else 0
    found = [_measure_texts(part) for part in value]
    return sum(count for count, _ in found), max((longest for _, longest in found), default=0)


def rescale_depth(stats: Stats, features: Features, unit: str) -> Stats:
    """Return statistics whose depth cameras are in `unit` ("m" or "mm"). Pure but for a warning."""
    factors = {("m", "mm"): 1000.0, ("mm", "m"): 0.001}
    scaled = dict(stats)
    for key in keys_of_dtype(features, CAMERA_DTYPES):
        entry = features[key]
        if key not in stats or not is_depth(entry):
            continue
        recorded = (entry.get("info") or {}).get("depth_unit")
        if recorded is None:
            logger.warning(
                "%s: info.json names no depth_unit; its statistics are not converted", key
            )
        elif recorded != unit:
            scaled[key] = _scale(key, stats[key], factors[recorded, unit])
    return scaled


def _scale(key: str, entry: FeatureStats, factor: float) -> FeatureStats:
    for name, value in entry.items():
        if name in _SCALED_STATS and value.dtype.kind not in "iuf":
            raise MetadataError(
                f"{config.STATS_PATH}: want numbers as {name!r} of the depth camera {key!r}, found "
                f"{value.tolist()!r:.200}. Restore the file, or delete it: statistics are optional."
            )
    return {n: value * factor if n in _SCALED_STATS else value for n, value in entry.items()}


def aggregate_stats(parts: Sequence[Mapping[str, FeatureStats]]) -> Stats:
    """Return the statistics of all parts together, features in order of first appearance.

    Mean and deviation are exact. Quantiles of the whole do not follow from those of the parts, so
    they are bounds: the smallest of the parts up to the median, the largest above it.
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    return {name: _aggregate([part[name] for part in parts if name in part]) for name in names}


def _aggregate(parts: Sequence[FeatureStats]) -> FeatureStats:
    counts = np.array([int(part["count"][0]) for part in parts])
    if not counts.sum():
        raise ValueError("every count is 0")
    # Older datasets have no quantiles. If a part has none, the whole has none.
    names = ["min", "max", "mean", "std", *(q for q in QUANTILES if all(q in p for p in parts))]
    values = {name: np.array([part[name] for part in parts]) for name in names}
    found = combine_stats(values, counts.reshape(-1, *[1] * (values["mean"].ndim - 1)))
    return {n: found[n] for n in names[:4]} | {"count": np.array([counts.sum()])} | found


def combine_stats(
    values: Mapping[str, npt.NDArray[Any]], counts: npt.NDArray[Any], *, is_partial: bool = False
) -> FeatureStats:
    """Return the statistics of parts together: exact mean and deviation, bounds of all others.

    `values` and `counts`, the frames, have parts along the first axis. If `is_partial`, a value
    without frames is none.
    """
    share = counts / np.maximum(counts.sum(axis=0), 1)
    mean = (values["mean"] * share).sum(axis=0)
    square = ((values["std"] ** 2 + (values["mean"] - mean) ** 2) * share).sum(axis=0)
    found = {"mean": mean, "std": np.sqrt(square)}
    for name in (name for name in values if name not in found):
        is_low = name == "min" or QUANTILES.get(name, 1.0) <= 0.5
        own = values[name]
        if is_partial:
            own = np.where(counts > 0, own, np.inf if is_low else -np.inf)
        found[name] = own.min(axis=0) if is_low else own.max(axis=0)
    return found


class Summary(NamedTuple):
    """How a kind of camera is summarised: a value per image, and statistics of those values."""

    dtype: np.dtype[Any]
    summarise: Callable[[Array], Array]
    merge: Callable[[Array], Array]  # joins values into one
    stats: Callable[..., FeatureStats]  # also takes the number of images behind each value


def column_stats(values: Array) -> FeatureStats:
    """Return the exact statistics of a column, frames along the first axis.

    They are taken per entry of the last axis, over all other axes; `count` is the frames. All
    others are float64 for every dtype, so that the episode table has one type per column.
    """
    frames = values.shape[0]
    flat = values.reshape(frames, 1) if values.ndim == 1 else values.reshape(-1, values.shape[-1])
    ranks = _quantile_ranks(len(flat))
    # Partitioning and blocks take far less memory and time than sorting a whole column as float64.
    ordered = np.partition(flat, sorted({0, len(flat) - 1, *ranks.values()}), axis=0)
    mean = flat.mean(axis=0, dtype=np.float64)
    squares = np.zeros_like(mean)
    for begin in range(0, len(flat), _BLOCK_ROWS):
        squares += np.square(flat[begin : begin + _BLOCK_ROWS] - mean).sum(axis=0)
    return {
        "min": ordered[0].astype(np.float64),
        "max": ordered[-1].astype(np.float64),
        "mean": mean,
        "std": np.sqrt(squares / len(flat)),
        "count": np.array([frames]),
        **{name: ordered[rank].astype(np.float64) for name, rank in ranks.items()},
    }


def as_lists(stats: FeatureStats) -> dict[str, Any]:
    """Return a feature's statistics as nested lists, for JSON."""
    return {name: value.tolist() for name, value in stats.items()}


def sampled_frames(num_frames: int) -> npt.NDArray[np.intp]:
    """Return the frames of an episode whose images are sampled, evenly spaced."""
    count = max(min(_MIN_SAMPLES, num_frames), min(int(num_frames**0.75), _MAX_SAMPLES))
    return np.round(np.linspace(0, num_frames - 1, count)).astype(np.intp)


def summarise_colour(image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the histograms of the channels of an HWC image."""
    from PIL import Image  # on demand: workers do not need it

    counts = Image.fromarray(_downsample(image)).histogram()
    return np.array(counts, dtype=np.uint32).reshape(_COLOURS, _LEVELS)


def summarise_depth(image: npt.NDArray[np.uint16] | npt.NDArray[np.float32]) -> Array:
    """Return moments and evenly spaced quantiles of an HW depth image, in its own unit."""
    values = np.sort(_downsample(image).ravel())
    ranks = (np.arange(_POINTS) * 2 + 1) * len(values) // (2 * _POINTS)
    exact = values.astype(np.float64)
    summary = (values[0], values[-1], exact.mean(), np.mean(exact**2), values[ranks])
    return np.array(summary, DEPTH.dtype)


def merge_colour(summaries: Array) -> Array:
    """Return the histograms of several colour images together."""
    merged: Array = summaries.sum(axis=0, dtype=np.int64)
    return merged


def colour_stats(summaries: Array, weights: npt.ArrayLike | None = None) -> FeatureStats:
    """Return a colour camera's statistics from its sampled summaries, on a scale of 0 to 1."""
    # `weights` are the images behind each summary, if it was made by `merge_colour`.
    counts = merge_colour(summaries)
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
        "count": np.array([len(summaries) if weights is None else np.sum(weights)]),
        **{
            name: _per_channel([levels[np.searchsorted(c, rank, side="right")] for c in cumulative])
            for name, rank in _quantile_ranks(total).items()
        },
    }


def depth_stats(summaries: Array, weights: npt.ArrayLike | None = None) -> FeatureStats:
    """Return a depth camera's statistics from its sampled summaries, in its own unit."""
    # Quantiles are exact to a 4096th of the pixels of each image; the other statistics are exact.
    # `weights` are the images behind each summary, if it was made by `merge_depth`.
    images = np.ones(len(summaries), np.int64) if weights is None else np.asarray(weights)
    points = summaries["points"].ravel()
    order = np.argsort(points)
    reached = np.cumsum(np.repeat(images, _POINTS)[order])
    mean = np.average(summaries["mean"], weights=images)
    variance = np.average(summaries["square"], weights=images) - mean**2
    return {
        "min": _per_channel(summaries["min"].min()),
        "max": _per_channel(summaries["max"].max()),
        "mean": _per_channel(mean),
        "std": _per_channel(np.sqrt(max(variance, 0))),
        "count": np.array([images.sum()]),
        **{
            name: _per_channel(points[order[np.searchsorted(reached, rank, side="right")]])
            for name, rank in _quantile_ranks(int(reached[-1])).items()
        },
    }


def merge_depth(summaries: Array) -> Array:
    """Return one summary of the same size for several depth images."""
    points = np.sort(summaries["points"].ravel())[len(summaries) // 2 :: len(summaries)]
    least, most = summaries["min"].min(), summaries["max"].max()
    moments = summaries["mean"].mean(), summaries["square"].mean()
    return np.array((least, most, *moments, points), DEPTH.dtype)


COLOUR = Summary(
    np.dtype((np.uint32, (_COLOURS, _LEVELS))), summarise_colour, merge_colour, colour_stats
)
DEPTH = Summary(
    np.dtype(
        [(name, np.float64) for name in ("min", "max", "mean", "square")]
        + [("points", np.float32, (_POINTS,))]
    ),
    summarise_depth,
    merge_depth,
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
