# SPDX-License-Identifier: Apache-2.0
"""When batches came: rates, waits, and how a run started up."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from robostream.bench.stretches import START_STRETCHES, STRETCH_S, stretch_rates

_PERCENTS = (50, 95, 99)


class DecodePacing:
    """The arrivals of batches, in seconds since the first was asked for."""

    def __init__(self, warmup_batches: int) -> None:
        self.warmup_batches = warmup_batches
        self.arrivals_s: list[float] = []
        self.waits_s: list[float] = []
        self.samples: list[int] = []

    def add(self, arrived_s: float, waited_s: float, samples: int) -> None:
        """Note one batch."""
        self.arrivals_s.append(arrived_s)
        self.waits_s.append(waited_s)
        self.samples.append(samples)

    @property
    def measured(self) -> int:
        """Samples delivered after the warm-up."""
        return sum(self.samples[self.warmup_batches :])

    @property
    def begin_s(self) -> float:
        """When the measurement began: with the arrival of the last batch of the warm-up."""
        return self.arrivals_s[self.warmup_batches - 1] if self.warmup_batches else 0.0

    def figures(self, batch_size: int) -> dict[str, Any]:
        """Return throughput, latencies and the start-up curve."""
        steady_s = self.arrivals_s[-1] - self.begin_s
        gaps = np.diff([self.begin_s, *self.arrivals_s[self.warmup_batches :]])
        waits = self.waits_s[self.warmup_batches :]
        rates = stretch_rates(self.arrivals_s, self.samples)
        return {
            "frames_measured": self.measured,
            "samples_per_s": self.measured / steady_s,
            "first_batch_latency_s": self.arrivals_s[0],
            **_percentiles("sample_latency_ms", gaps * 1e3 / batch_size),
            **_percentiles("batch_wait_ms", np.array(waits) * 1e3),
            "steady_time_s": steady_s,
            "total_time_s": self.arrivals_s[-1],
            "wait_pct": 100 * sum(waits) / steady_s,
            "stretch_s": STRETCH_S,
            "samples_per_s_by_stretch": [round(rate, 1) for rate in rates],
            "start_lowest_samples_per_s": min(rates[:START_STRETCHES]),
            "start_median_samples_per_s": median(rates),
        }


def _percentiles(name: str, values: Any) -> dict[str, float]:
    found = np.percentile(values, _PERCENTS)
    return {
        f"p{percent}_{name}": float(value) for percent, value in zip(_PERCENTS, found, strict=True)
    }
