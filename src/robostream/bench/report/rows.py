# SPDX-License-Identifier: Apache-2.0
"""Runs of equal settings as one row: medians over rounds and nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from robostream.bench.results import Figures, medians

_SETTINGS = (
    "source",
    "mode",
    "video_decode_device",
    "num_workers",
    "batch_size",
    "prefetch_factor",
    "episode_pool_size",
    "return_uint8",
    "repo_id",
)


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one setting.

    Attributes:
        runs: Their figures.
        numbers: The median of each.
    """

    runs: list[Figures]
    numbers: Figures

    def __getitem__(self, name: str) -> Any:
        """Return the median of a figure, or the setting of that name."""
        if name in _SETTINGS or name not in self.numbers:
            return self.runs[0][name]
        return self.numbers[name]

    @property
    def label(self) -> str:
        """The row in a few words."""
        return f"{self['source']} · {self['mode']} · {workers_text(self)}"

    @property
    def label_in_mode(self) -> str:
        """The same where the mode is said already."""
        return f"{self['source']} · {workers_text(self)}"

    @property
    def over_floor(self) -> float | None:
        """Images/s over those of the floor; None where there is none."""
        ratios = [
            run["images_per_s"] / run["floor_images_per_s"]
            for run in self.runs
            if run.get("floor_images_per_s")
        ]
        return median(ratios) if ratios else None

    @property
    def hit_rate(self) -> float | None:
        """The hit rate of open video files."""
        rates = [run["video_decoder_cache"]["hit_rate"] for run in self.runs]
        known = [rate for rate in rates if rate is not None]
        return median(known) if known else None

    @property
    def nodes(self) -> int:
        """On how many machines it was measured."""
        return len({run["node"]["hostname"] for run in self.runs if "node" in run} or {""})

    def spread(self, name: str) -> tuple[float, float]:
        """Return the least and the most of a figure."""
        values = [run[name] for run in self.runs]
        return min(values), max(values)

    def typical(self) -> Figures:
        """Return the run whose throughput is the median's, or next to it."""
        return min(self.runs, key=lambda run: abs(run["images_per_s"] - self["images_per_s"]))


def group_rows(runs: Sequence[Figures]) -> list[Row]:
    """Return a row for each setting, by mode, source and workers. Pure."""
    groups: dict[tuple[Any, ...], list[Figures]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.get(name) for name in _SETTINGS)].append(run)
    rows = [Row(group, medians(group)) for group in groups.values()]
    return sorted(rows, key=lambda row: (row["mode"] != "single", row["source"], _workers(row)))


def workers_text(row: Row) -> str:
    """Return "3 workers" or "1 worker"."""
    number = _workers(row)
    return f"{number} worker{'' if number == 1 else 's'}"


def _workers(row: Row) -> int:
    return int(row["num_workers"])
