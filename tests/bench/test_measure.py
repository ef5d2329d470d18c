# SPDX-License-Identifier: Apache-2.0
"""Tests of the measuring loop: arrivals, waits and rates."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.bench import measure
from robostream.bench.measure import (
    INTERVAL_S,
    BatchTimes,
    BenchCase,
    consume,
    latency_figures,
    limit_time,
    measure_loading,
    rate_after,
    rates_by_interval,
    run_rounds,
)
from tests.bench.runs import case_of
from tests.fixture_datasets import FIXTURES

GAPS = st.lists(st.floats(1e-3, 3.0), min_size=1, max_size=200)


@given(gaps=GAPS)
def test_intervals_hold_every_sample_up_to_their_end(gaps: list[float]) -> None:
    """Rate times interval, summed, is the number of samples in whole intervals."""
    arrivals = list(itertools.accumulate(gaps))
    rates = rates_by_interval(arrivals, [4] * len(gaps))
    if arrivals[-1] < INTERVAL_S:
        assert rates == [pytest.approx(4 * len(gaps) / arrivals[-1])]
        return
    end = len(rates) * INTERVAL_S
    came = [arrival for arrival in arrivals if arrival < end or arrival == end]

    assert sum(rates) * INTERVAL_S == pytest.approx(4 * len(came))


@given(gaps=GAPS.filter(lambda gaps: len(gaps) > 3), warmup=st.integers(0, 3))
def test_throughput_begins_with_the_last_batch_of_the_warm_up(
    gaps: list[float], warmup: int
) -> None:
    """Only batches after the warm-up count, and only the time since its last batch."""
    arrivals = list(itertools.accumulate(gaps))
    times = BatchTimes(warmup, arrivals, gaps, [8] * len(gaps))
    figures = latency_figures(times, 8)

    assert figures["frames_measured"] == 8 * (len(gaps) - warmup)
    assert figures["samples_per_s"] == pytest.approx(
        8 * (len(gaps) - warmup) / sum(gaps[warmup:]), rel=1e-6
    )
    assert figures["p50_batch_wait_ms"] <= figures["p95_batch_wait_ms"] + 1e-9
    assert figures["start_lowest_samples_per_s"] <= figures["start_median_samples_per_s"]


class Clock:
    """A clock that advances only when batches or the consumer take time."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def batches(self, count: int, seconds: float) -> Iterator[dict[str, Any]]:
        """Yield batches that take some seconds each."""
        for _ in range(count):
            self.now_s += seconds
            yield {"index": [0] * 4}

    def spend(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that the measuring loop reads."""
    found = Clock()
    monkeypatch.setattr(measure, "time", SimpleNamespace(perf_counter=lambda: found.now_s))
    return found


def test_the_loop_notes_arrivals_waits_and_its_end(clock: Clock) -> None:
    """A batch takes 0.5 s, the consumer 0.25 s with each, and the end 1 s."""
    batches = clock.batches(5, 0.5)
    times = consume(
        batches,
        max_batches=3,
        on_batch=lambda _: clock.spend(0.25),
        finish=lambda: clock.spend(1.0),
    )

    assert times.arrivals_s == [0.5, 1.25, 2.0]
    assert times.waits_s == [0.5, 0.5, 0.5]
    assert times.samples == [4, 4, 4]
    assert times.end_s == 3.25
    assert (times.begin_s, times.steady_s, times.num_measured) == (0.5, 1.5, 8)
    assert len(list(batches)) == 2


@pytest.mark.parametrize(("from_first", "taken"), [(True, 6), (False, 5)])
def test_time_is_limited_from_the_first_batch_or_from_the_start(
    clock: Clock, from_first: bool, taken: int
) -> None:
    """A batch each 0.5 s; the batch that is over the limit is the last. 0 is no limit."""
    limited = limit_time(clock.batches(9, 0.5), 2.25, from_first_batch=from_first)

    assert len(consume(limited).samples) == taken
    assert len(consume(limit_time(clock.batches(9, 0.5), 0.0)).samples) == 9


def test_images_are_counted_after_the_first_batch(clock: Clock) -> None:
    """Three batches of 4 samples of 2 images in 1.5 s, after opening for 2 s."""
    case = case_of(FIXTURES / "av1_multifile")

    def open_loader(_: BenchCase) -> Iterator[dict[str, Any]]:
        clock.spend(2.0)
        return clock.batches(4, 0.5)

    _, figures = measure_loading(case, open_loader)

    assert figures["images_per_s"] == figures["images_per_s_after_start"] == 16
    assert figures["samples_per_s"] == 8
    assert figures["first_batch_s"] == 2.5
    assert figures["rates"] == [16]
    assert figures["lowest_over_median"] == 1


def test_the_rate_after_the_start_leaves_out_what_arrived_in_it() -> None:
    """Of a run that ends before, it is that of all."""
    assert rate_after(4.0, [1.0, 4.0, 5.0, 6.0], [10, 10, 6, 4], 9.0) == 2
    assert rate_after(4.0, [1.0, 3.0], [10, 20], 3.0) == 10


def test_runs_take_turns_in_each_round() -> None:
    """Every run once, then every run again; each run has its own results."""
    order: list[str] = []
    runs = {name: lambda name=name: order.append(name) or len(order) for name in "ab"}

    assert run_rounds(runs, 2) == {"a": [1, 3], "b": [2, 4]}
    assert order == ["a", "b", "a", "b"]
