# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from robostream.bench.plan import measure_plan
from robostream.bench.processes import run_process


def test_a_size_is_measured_in_a_process_of_its_own() -> None:
    """The process prints every figure as JSON, and does not import torch."""
    figures = run_process(measure_plan, num_frames=60_000, rounds=21)

    assert figures["episodes"] == 200
    assert all(value > 0 for value in figures.values())
    assert figures["peak_rss_mb"] < 150
