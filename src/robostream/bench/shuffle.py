# SPDX-License-Identifier: Apache-2.0
"""Shuffle quality at several pool sizes, beside what others do."""

from __future__ import annotations

import dataclasses
from typing import Any

from robostream.bench.environment import machine
from robostream.bench.table import format_table
from robostream.plan import default_lanes
from robostream.tools import made_up_lengths, measure_methods


def run(quick: bool) -> dict[str, Any]:
    """Measure, print the table, and return the figures."""
    lengths = made_up_lengths(500 if quick else 2000, 150, seed=0)
    measured = measure_methods(
        lengths,
        batch_size=64,
        lanes=default_lanes(len(lengths), 1, shuffle=True),
        pool_sizes=[16, 64, 256],
        seed=0,
    )
    rows = [dataclasses.asdict(quality) for quality in measured]
    print(format_table(list(rows[0]), [list(row.values()) for row in rows]))
    return {"machine": machine(), "results": rows}
