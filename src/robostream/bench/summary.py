# SPDX-License-Identifier: Apache-2.0
"""The rows of a report: read the results below a folder, one row for equal settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from robostream.bench.results import Figures, medians, read_figures
from robostream.errors import RobostreamError

# A field of every result of `bench stream`; other JSON files may lie beside them.
_MARK = "frames_per_s_node"

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
class ReportRow:
    """All runs of one setting.

    Attributes:
        runs: Their figures.
        numbers: The median of each figure.
    """

    runs: list[Figures]
    numbers: Figures

    def __getitem__(self, name: str) -> Any:
        """Return the median of a figure, or a setting."""
        if name in _SETTINGS or name not in self.numbers:
            return self.runs[0][name]
        return self.numbers[name]

    @property
    def workers(self) -> str:
        """The number of workers in words."""
        number = int(self["num_workers"])
        return f"{number} worker{'' if number == 1 else 's'}"

    @property
    def label(self) -> str:
        """Source, mode and workers."""
        return f"{self['source']} · {self['mode']} · {self.workers}"

    @property
    def over_floor(self) -> float | None:
        """Images/s over those of the floor; None without a floor."""
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
        """The number of machines it was measured on."""
        return len({run["node"]["hostname"] for run in self.runs if "node" in run} or {""})

    def spread(self, name: str) -> tuple[float, float]:
        """Return the smallest and the largest value of a figure."""
        values = [run[name] for run in self.runs]
        return min(values), max(values)

    def typical(self) -> Figures:
        """Return the run whose throughput is closest to the median."""
        return min(self.runs, key=lambda run: abs(run["images_per_s"] - self["images_per_s"]))


def group_rows(runs: Sequence[Figures]) -> list[ReportRow]:
    """Return a row for each setting, by mode, source and workers. Pure."""
    groups: dict[tuple[Any, ...], list[Figures]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.get(name) for name in _SETTINGS)].append(run)
    rows = [ReportRow(group, medians(group)) for group in groups.values()]
    return sorted(rows, key=lambda r: (r["mode"] != "single", r["source"], int(r["num_workers"])))


def summary_rows(rows: Sequence[ReportRow]) -> list[dict[str, Any]]:
    """Return the columns of the table and of summary.csv, LeRobot's first. Pure."""
    return [
        {
            "source": row["source"],
            "mode": row["mode"],
            "decode": row["video_decode_device"],
            "workers": row["num_workers"],
            "bs": row["batch_size"],
            "frames/s/node": row["frames_per_s_node"],
            "first_batch_s": row["first_batch_latency_s"],
            "p50_ms": row["p50_sample_latency_ms"],
            "p95_ms": row["p95_sample_latency_ms"],
            "p99_ms": row["p99_sample_latency_ms"],
            "cache_hit_rate": row.hit_rate,
            "images/s": row["images_per_s"],
            "over_floor": row.over_floor,
            "start_lowest": row["start_lowest_samples_per_s"],
            "decoded/delivered": row["amplification"],
            "peak_gb": row["peak_pss_gb"],
            "runs": len(row.runs),
            "nodes": row.nodes,
        }
        for row in rows
    ]


def collect(folder: Path) -> tuple[list[Figures], dict[str, str]]:
    """Return the figures of all runs below a folder, and the reasons of failures by file.

    A file NAME.failed means that a run failed, and its first line says why; a job that runs the
    benchmark may write one. An unreadable JSON file is a failure, too.
    """
    if not folder.is_dir():
        raise RobostreamError(
            f"{folder}: want a folder of results, found none. Run `robostream bench stream` first, "
            "or give its --out_dir."
        )
    runs, failures = [], {}
    for path in sorted(folder.rglob("*.json")):
        try:
            figures = read_figures(path)
        except RobostreamError as error:
            failures[str(path.relative_to(folder))] = str(error)
            continue
        if _MARK in figures:
            runs.append(figures)
    for path in sorted(folder.rglob("*.failed")):
        reason = path.read_text(errors="replace").strip().splitlines()
        failures[str(path.relative_to(folder))] = reason[0] if reason else "no reason given"
    return runs, failures
