# SPDX-License-Identifier: Apache-2.0
"""Computed statistics beside the recorded ones of meta/stats.json, and written in their place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from robostream import config
from robostream.errors import WriteError
from robostream.meta import MOMENTS, QUANTILES, Features, Stats, as_lists, parse_info
from robostream.tools.staging import save_result


@dataclass(frozen=True, slots=True)
class StatsDifference:
    """How far the recorded statistics of a feature are from the computed ones.

    As shares of its range, the largest of its dimensions; None if nothing comparable is recorded.
    """

    feature: str
    moments: float | None  # the largest difference of min, max, mean and std
    quantiles: float | None  # the largest difference of a quantile


def compare_stats(computed: Stats, recorded: Mapping[str, Any]) -> list[StatsDifference]:
    """Return the differences of every computed feature. Pure."""
    found = []
    for feature, entry in computed.items():
        spread = entry["max"] - entry["min"]
        spread = np.where(spread > 0, spread, np.maximum(np.abs(entry["max"]), 1.0))
        shares: dict[str, float] = {}
        for name, value in entry.items():
            other = recorded.get(feature, {}).get(name)
            if other is not None and other.shape == value.shape and other.dtype.kind in "biuf":
                shares[name] = float(np.max(np.abs(value - other) / spread))
        groups = [name for name in MOMENTS if name != "count"], [*QUANTILES]
        worst = [max((shares[n] for n in group if n in shares), default=None) for group in groups]
        found.append(StatsDifference(feature, worst[0], worst[1]))
    return found


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
