# SPDX-License-Identifier: Apache-2.0
"""Counts, rates and waiting times of a loader."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from robostream.decode import COUNTERS, summarise
from robostream.device import create_memory, map_memory
from robostream.loader.bottleneck import LoadShares, describe_limit
from robostream.progress import Progress


class LoaderStats:
    """Counts of the running epoch and of all epochs.

    Args:
        num_workers: How many processes decode.
        images_per_sample: Images of a sample.

    Attributes:
        counters: A row of `decode.COUNTERS` for each process; they include what is built ahead.
    """

    def __init__(self, num_workers: int, images_per_sample: int) -> None:
        self.counters = np.zeros((num_workers, len(COUNTERS)))
        self._images_per_sample = images_per_sample
        self._total_samples = 0
        self._total_batches = 0
        self._total_wait_s = 0.0
        self._lacking_bytes = 0
        self.begin()

    def share_counters(self, lacking_bytes: int) -> int:
        """Move the counters to new memory that workers can share; return its descriptor.

        The workers have so many bytes too little for decoded frames.
        """
        self._lacking_bytes = lacking_bytes
        before = self.counters
        fd = create_memory(before.nbytes)
        self.counters = map_memory(fd)[: before.nbytes].view(np.float64).reshape(before.shape)
        self.counters[:] = before
        return fd

    def begin(self) -> None:
        """Begin a new epoch: its counts start at 0."""
        self._samples = 0
        self._batches = 0
        self._wait_s = 0.0
        self._first_batch_s = 0.0
        self._counters_before = self._counters_last = self.counters.copy()
        self._began = self._last = time.perf_counter()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time in this block as time the consumer waited."""
        began = time.perf_counter()
        yield
        waited = time.perf_counter() - began
        self._wait_s += waited
        self._total_wait_s += waited
        if self._batches == 0:
            self._first_batch_s = waited

    def add(self, samples: int) -> None:
        """Count one delivered batch."""
        self._samples += samples
        self._batches += 1
        self._last = time.perf_counter()
        self._counters_last = self.counters.copy()
        self._total_samples += samples
        self._total_batches += 1

    def open_progress(self, label: str, samples: int, *, is_shown: bool) -> Progress:
        """Return the progress of an epoch; its owner counts the samples and closes it."""

        def waited() -> str:
            return f"waited {self._wait_s / max(self._last - self._began, 1e-9):.0%}"

        return Progress(label, samples, "samples", fact=waited, is_shown=is_shown)

    def shares(self) -> LoadShares:
        """Return how the consumer and the workers have spent the running epoch."""
        seconds = max(self._last - self._began, 1e-9)
        # Up to the last batch: workers go on. They also build batches of the next epoch before it.
        done = np.maximum(self._counters_last - self._counters_before, 0)
        each = {name: np.minimum(done[:, n] / seconds, 1) for n, name in enumerate(COUNTERS)}
        total = dict(zip(COUNTERS, done.sum(axis=0).tolist(), strict=True))
        return LoadShares(
            waited=min(self._wait_s / seconds, 1.0),
            busy=float(each["busy_s"].mean()),
            busiest=float(each["busy_s"].max()),
            reading=float(each["fetch_s"].mean()),
            decoding=float(each["decode_s"].mean()),
            is_remote=total["bytes_fetched"] > 0,
            evicted=total["picture_evictions"] / max(total["images_decoded"], 1),
            lacking_bytes=self._lacking_bytes,
        )

    def limited_by(self) -> str:
        """Return what limits the running epoch, and what would help, in one line."""
        return describe_limit(self.shares()) if self._batches else "nothing yet: no batch came"

    def stats(self) -> dict[str, float]:
        """Return all counters and rates as one flat dict."""
        seconds, shares = max(self._last - self._began, 1e-9), self.shares()
        work = summarise(self.counters.sum(axis=0))
        return {
            "samples": float(self._total_samples),
            "batches": float(self._total_batches),
            "epoch_samples": float(self._samples),
            "epoch_batches": float(self._batches),
            "samples_per_s": self._samples / seconds,
            "images_per_s": self._samples * self._images_per_sample / seconds,
            "dataloading_s": self._total_wait_s,
            "epoch_dataloading_s": self._wait_s,
            "first_batch_s": self._first_batch_s,
            "epoch_waited": shares.waited,
            "epoch_busy": shares.busy,
            "epoch_busiest": shares.busiest,
            "frame_cache_lacking_bytes": float(shares.lacking_bytes),
            **work,
            # Workers also build batches ahead, and some that nobody takes.
            "images_built": work["images_delivered"],
            "images_delivered": float(self._total_samples * self._images_per_sample),
        }

    def line(self) -> str:
        """Return the running epoch in one line."""
        now = self.stats()
        return (
            f"{now['samples_per_s']:.0f} samples/s, {now['images_per_s']:.0f} images/s, "
            f"waited {now['epoch_dataloading_s']:.1f} s, "
            f"{now.get('amplification', 0.0):.2f} images decoded per image delivered; "
            f"limited by {self.limited_by()}"
        )
