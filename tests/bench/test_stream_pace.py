# SPDX-License-Identifier: Apache-2.0
"""Rates over stretches and after the warm-up count every sample once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.bench.stream.pace import DecodePacing
from robostream.bench.stretches import STRETCH_S, stretch_rates

GAPS = st.lists(st.floats(1e-3, 3.0), min_size=1, max_size=200)


@given(gaps=GAPS)
def test_stretches_hold_every_sample_up_to_their_end(gaps: list[float]) -> None:
    """The rates times their length are the samples that came in whole stretches."""
    arrivals = list(itertools.accumulate(gaps))
    rates = stretch_rates(arrivals, [4] * len(gaps))
    if arrivals[-1] < STRETCH_S:
        assert rates == [pytest.approx(4 * len(gaps) / arrivals[-1])]
        return
    end = len(rates) * STRETCH_S
    came = [arrival for arrival in arrivals if arrival < end or arrival == end]

    assert sum(rates) * STRETCH_S == pytest.approx(4 * len(came))


@given(gaps=GAPS.filter(lambda gaps: len(gaps) > 3), warmup=st.integers(0, 3))
def test_throughput_begins_with_the_last_batch_of_the_warm_up(
    gaps: list[float], warmup: int
) -> None:
    """What came later, over the time it took; a wait in the warm-up counts for nothing."""
    pace = DecodePacing(warmup)
    for arrival, gap in zip(itertools.accumulate(gaps), gaps, strict=True):
        pace.add(arrival, gap, 8)
    figures = pace.figures(8)

    assert figures["frames_measured"] == 8 * (len(gaps) - warmup)
    assert figures["samples_per_s"] == pytest.approx(
        8 * (len(gaps) - warmup) / sum(gaps[warmup:]), rel=1e-6
    )
    assert figures["p50_batch_wait_ms"] <= figures["p95_batch_wait_ms"] + 1e-9
    assert figures["start_lowest_samples_per_s"] <= figures["start_median_samples_per_s"]
