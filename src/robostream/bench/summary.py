# SPDX-License-Identifier: Apache-2.0
"""The rows of a report: read the results below a folder, one row for equal settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from robostream.bench.results import Figures, medians, read_figures
from robostream.errors import RobostreamError

# A field of every result of `bench stream`; other JSON files may lie beside them.
_MARK = "frames_per_s_node"
_SETTINGS = ["source", "mode", "video_decode_device", "num_workers", "batch_size"]
_SETTINGS += ["prefetch_factor", "episode_pool_size", "return_uint8", "repo_id"]
# The columns of the table and of summary.csv, LeRobot's first.
COLUMNS = {
    "source": "source",
    "mode": "mode",
    "decode": "video_decode_device",
    "workers": "num_workers",
    "bs": "batch_size",
    "frames/s/node": "frames_per_s_node",
    "first_batch_s": "first_batch_latency_s",
    "p50_ms": "p50_sample_latency_ms",
    "p95_ms": "p95_sample_latency_ms",
    "p99_ms": "p99_sample_latency_ms",
    "cache_hit_rate": "hit_rate",
    "images/s": "images_per_s",
    "over_floor": "over_floor",
    "start_lowest": "start_lowest_samples_per_s",
    "decoded/delivered": "amplification",
    "peak_gb": "peak_pss_gb",
    "runs": "num_runs",
    "nodes": "num_nodes",
}


def group_rows(runs: Sequence[Figures]) -> list[Figures]:
    """Return a row for each setting, by mode, source and workers. Pure.

    A row has the medians of its runs, and besides:
        runs: All of them.
        typical: The run whose throughput is closest to the median.
        over_floor: Images/s over those of the floor; None without a floor.
        hit_rate: The hit rate of open video files; None if no file was opened.
        num_nodes: The number of machines it was measured on.
    """
    groups: dict[tuple[Any, ...], list[Figures]] = defaultdict(list)
    for run in runs:
        groups[tuple(run.get(name) for name in _SETTINGS)].append(run)
    rows = [_summarize(group) for group in groups.values()]
    return sorted(rows, key=lambda r: (r["mode"] != "single", r["source"], int(r["num_workers"])))


def _summarize(runs: list[Figures]) -> Figures:
    middle = medians(runs)
    floors = [run for run in runs if run.get("floor_images_per_s")]
    rates = [run["video_decoder_cache"]["hit_rate"] for run in runs]
    workers = f"{runs[0]['num_workers']} worker{'' if runs[0]['num_workers'] == 1 else 's'}"
    return {
        **runs[0],
        **middle,
        **{name: runs[0].get(name) for name in _SETTINGS},
        "runs": runs,
        "typical": min(runs, key=lambda run: abs(run["images_per_s"] - middle["images_per_s"])),
        "workers": workers,
        "label": f"{runs[0]['source']} · {runs[0]['mode']} · {workers}",
        "over_floor": _median([run["images_per_s"] / run["floor_images_per_s"] for run in floors]),
        "hit_rate": _median([rate for rate in rates if rate is not None]),
        "num_runs": len(runs),
        "num_nodes": len({run["node"]["hostname"] for run in runs if "node" in run} or {""}),
    }


def _median(values: list[float]) -> float | None:
    return median(values) if values else None


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
