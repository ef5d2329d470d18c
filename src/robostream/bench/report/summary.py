# SPDX-License-Identifier: Apache-2.0
"""The rows as a table for people and as summary.csv; LeRobot's columns first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from robostream.bench.report.rows import Row
from robostream.bench.results import csv_text
from robostream.bench.table import format_table


def summary_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return what table and CSV say. Pure."""
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


def summary_text(rows: Sequence[Row]) -> str:
    """Return the table. Pure."""
    found = summary_rows(rows)
    cells = [["-" if value is None else value for value in row.values()] for row in found]
    return format_table(list(found[0]), cells)


def summary_csv(rows: Sequence[Row]) -> str:
    """Return the CSV; what is not known is empty. Pure."""
    return csv_text(summary_rows(rows))
