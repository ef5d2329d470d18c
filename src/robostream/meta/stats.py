# SPDX-License-Identifier: Apache-2.0
"""meta/stats.json: statistics over the whole dataset, for normalisation."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.errors import MetadataError
from robostream.meta.features import CAMERA_DTYPES, Features, is_depth, keys_of_dtype

logger = logging.getLogger(__name__)

Stats = dict[str, dict[str, npt.NDArray[Any]]]

# An array of texts takes as much for each as for the longest of them.
_MOST_LETTERS = 1 << 24
_SCALED = ("min", "max", "mean", "std", "q01", "q10", "q50", "q90", "q99")


def parse_stats(text: str | bytes, where: str) -> Stats:
    """Return the statistics of stats.json as arrays of at least one axis."""
    try:
        data = json.loads(text)
        return {
            feature: {name: np.atleast_1d(_as_array(value)) for name, value in entry.items()}
            for feature, entry in data.items()
        }
    except (ValueError, AttributeError, RecursionError) as error:
        raise MetadataError(
            f"{where}: not a JSON object of statistics ({error}). Restore the file, or delete it: "
            "statistics are optional."
        ) from error


def _as_array(value: Any) -> npt.NDArray[Any]:
    count, longest = _texts_in(value)
    if count * longest > _MOST_LETTERS:
        raise ValueError(f"{count:,} values, one of them a text of {longest:,} letters")
    return np.asarray(value)


def _texts_in(value: Any) -> tuple[int, int]:
    """Return how many values there are, and the length of the longest text among them."""
    if not isinstance(value, list):
        return 1, len(value) if isinstance(value, str) else 0
    found = [_texts_in(part) for part in value]
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


def _scale(
    key: str, entry: Mapping[str, npt.NDArray[Any]], factor: float
) -> dict[str, npt.NDArray[Any]]:
    for name, value in entry.items():
        if name in _SCALED and value.dtype.kind not in "iuf":
            raise MetadataError(
                f"{config.STATS_PATH}: want numbers as {name!r} of the depth camera {key!r}, found "
                f"{value.tolist()!r:.200}. Restore the file, or delete it: statistics are optional."
            )
    return {name: value * factor if name in _SCALED else value for name, value in entry.items()}
