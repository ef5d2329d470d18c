# SPDX-License-Identifier: Apache-2.0
"""Computed statistics beside the recorded ones of meta/stats.json, and written in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.errors import WriteError
from robostream.meta import MOMENTS, QUANTILES, Features, FeatureStats, Stats, as_lists, parse_info
from robostream.tools.staging import save_result


@dataclass(frozen=True, slots=True)
class StatsDifference:
    """How far the recorded statistics of a feature are from the computed ones.

    As shares of the range of its finite values, the largest of its dimensions; infinite where only
    one side is finite, or the signs differ. None if nothing comparable is recorded.
    """

    feature: str
    moments: float | None  # the largest difference of min, max, mean and std
    quantiles: float | None  # the largest difference of a quantile


def compare_stats(computed: Stats, recorded: Mapping[str, Any]) -> list[StatsDifference]:
    """Return the differences of every computed feature. Pure."""
    found = []
    for feature, entry in computed.items():
        spread = _spread(entry)
        shares: dict[str, float] = {}
        for name, value in entry.items():
            other = recorded.get(feature, {}).get(name)
            if other is not None and other.shape == value.shape and other.dtype.kind in "biuf":
                shares[name] = float(np.max(_distance(value, other) / spread))
        groups = [name for name in MOMENTS if name != "count"], [*QUANTILES]
        worst = [max((shares[n] for n in group if n in shares), default=None) for group in groups]
        found.append(StatsDifference(feature, worst[0], worst[1]))
    return found


def _spread(entry: FeatureStats) -> npt.NDArray[Any]:
    """Return the range of each dimension, of its finite values only; above 0."""
    known = np.stack([entry[name] for name in ("min", "max", *QUANTILES) if name in entry])
    finite = np.isfinite(known)
    highest = known.max(axis=0, where=finite, initial=-np.inf)
    spread = highest - known.min(axis=0, where=finite, initial=np.inf)
    # Of a constant, its own size. Of no finite values, 1.
    size = np.where(finite.any(axis=0), np.maximum(np.abs(highest), 1.0), 1.0)
    return np.where(spread > 0, spread, size)


def _distance(value: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return how far two values are apart: 0 if both are NaN or the same infinity."""
    with np.errstate(invalid="ignore"):  # of infinities with the same sign
        apart = np.abs(value - other)
    equal = (value == other) | (np.isnan(value) & np.isnan(other))
    return np.where(equal, 0.0, np.where(np.isnan(apart), np.inf, apart))


def find_stats_file(dest: Path) -> Path:
    """Return a .json file, or that of a dataset's folder, to write statistics to; or raise."""
    if dest.suffix == ".json":
        return dest
    if not (dest / config.INFO_PATH).is_file():
        raise WriteError(
            f"want a file name that ends in .json, or the folder of a dataset, to write statistics "
            f"to; {dest} has no {config.INFO_PATH}. Nothing is written."
        )
    path = dest / config.INFO_PATH
    if parse_info(path.read_bytes(), str(path)).stats_path != config.STATS_PATH:
        raise WriteError(
            f"{dest} is of v2.1, whose statistics are those of each episode in "
            f"{config.V2_STATS_PATH}; readers would ignore a {config.STATS_PATH}. Convert the "
            "dataset first (robostream convert), or give the name of a .json file. Nothing is "
            "written."
        )
    return dest / config.STATS_PATH


def write_stats(path: Path, stats: Stats, recorded: Stats, features: Features) -> None:
    """Write statistics as LeRobot stores them, in the order of the features.

    Features that `stats` lacks, such as cameras that were not decoded, keep the recorded ones.
    """
    together = {**recorded, **stats}
    names = [*(name for name in features if name in together), *together]
    lists = {name: as_lists(together[name]) for name in names}
    text = json.dumps(lists, indent=4, ensure_ascii=False)
    save_result(path, text.encode(), what="the statistics to ")
