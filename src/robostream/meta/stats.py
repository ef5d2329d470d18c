# SPDX-License-Identifier: Apache-2.0
"""Statistics of features as arrays: parsed, aggregated over episodes, converted to a depth unit."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.errors import MetadataError, MissingFileError
from robostream.meta.features import CAMERA_DTYPES, Features, is_depth, keys_of_dtype
from robostream.storage import FileOpener

logger = logging.getLogger(__name__)

FeatureStats = dict[str, npt.NDArray[Any]]
"""The statistics of one feature by name: min, max, mean, std, count and quantiles."""
Stats = dict[str, FeatureStats]
"""The statistics of each feature."""

QUANTILES = {"q01": 0.01, "q10": 0.10, "q50": 0.50, "q90": 0.90, "q99": 0.99}
# numpy stores an array of texts with the length of the longest for each.
_MOST_LETTERS = 1 << 24
_SCALED_STATS = ("min", "max", "mean", "std", *QUANTILES)


def read_json(opener: FileOpener, file: str) -> bytes:
    """Return the bytes of a JSON file, within the limit; raise MissingFileError without it."""
    limit = config.json_limit_bytes()
    return opener.read_file(file, max_bytes=limit, setting=config.JSON_LIMIT_NAME)


def load_stats(opener: FileOpener) -> Stats | None:
    """Return the statistics of stats.json; None without that file."""
    try:
        text = read_json(opener, config.STATS_PATH)
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

    Args:
        values: Statistics by name, with parts along the first axis.
        counts: The frames of each part.
        is_partial: Whether a value without frames is none.
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
