# SPDX-License-Identifier: Apache-2.0
"""Counts, rates and waiting times of a loader, and its progress bar."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from robostream.progress import Progress


class LoaderStats:
    """Counts of the running epoch and of all epochs.

    Args:
        decoder_stats: Returns the decoder's counters, summed over this rank's processes. They
            include what is built ahead.
        images_per_sample: Images of a sample.
    """

    def __init__(
        self, decoder_stats: Callable[[], dict[str, float]], images_per_sample: int
    ) -> None:
        self._decoder_stats = decoder_stats
        self._images_per_sample = images_per_sample
        self.total_samples = 0
        self.total_batches = 0
        self.total_wait_s = 0.0
        self.begin()

    def begin(self) -> None:
        """Begin a new epoch: its counts start at 0."""
        self.samples = 0
        self.batches = 0
        self.wait_s = 0.0
        self.first_batch_s = 0.0
        self._began = self._last = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in this block as time the consumer waited."""
        began = time.perf_counter()
        yield
        waited = time.perf_counter() - began
        self.wait_s += waited
        self.total_wait_s += waited
        if self.batches == 0:
            self.first_batch_s = waited

    def add(self, samples: int) -> None:
        """Count one delivered batch."""
        self.samples += samples
        self.batches += 1
        self._last = time.perf_counter()
        self.total_samples += samples
        self.total_batches += 1

    def open_progress(self, label: str, samples: int, *, is_shown: bool) -> Progress:
        """Return the progress of an epoch; its owner counts the samples and closes it."""

        def waited() -> str:
            return f"waited {self.wait_s / max(self._last - self._began, 1e-9):.0%}"

        return Progress(label, samples, "samples", fact=waited, is_shown=is_shown)

    def stats(self) -> dict[str, float]:
        """Return all counters and rates as one flat dict."""
        seconds = max(self._last - self._began, 1e-9)
        return {
            "samples": float(self.total_samples),
            "batches": float(self.total_batches),
            "epoch_samples": float(self.samples),
            "epoch_batches": float(self.batches),
            "samples_per_s": self.samples / seconds,
            "images_per_s": self.samples * self._images_per_sample / seconds,
            "dataloading_s": self.total_wait_s,
            "epoch_dataloading_s": self.wait_s,
            "first_batch_s": self.first_batch_s,
            **self._decoder_stats(),
        }

    def line(self) -> str:
        """Return the running epoch in one line."""
        now = self.stats()
        return (
            f"{now['samples_per_s']:.0f} samples/s, {now['images_per_s']:.0f} images/s, "
            f"waited {now['epoch_dataloading_s']:.1f} s, "
            f"{now.get('amplification', 0.0):.2f} images decoded per image delivered"
        )
