# SPDX-License-Identifier: Apache-2.0
"""Counts, rates and waiting times of a loader: what limits a run, and what would help."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from robostream.byte_sizes import format_bytes
from robostream.decode import COUNTERS, summarise
from robostream.device import create_and_map
from robostream.progress import Progress

# A consumer that waits less than this share of its time would gain little from faster loading.
_LITTLE_WAITING = 0.05
# Workers that spend more than this share of their time on reading wait for bytes.
_MUCH_READING = 0.3
# Of decoded frames, more than this share evicted before their use is a lack of memory.
_MANY_EVICTED = 0.05
# Workers that are busy for less than this share of their time wait for each other.
_BUSY = 0.85


@dataclass(frozen=True, slots=True)
class LoadShares:
    """How a consumer and its workers spent an epoch, from its first batch on.

    Shares are of their time, from 0 to 1.
    """

    waited: float  # the consumer waited for batches
    busy: float  # the workers built batches, on average
    busiest: float  # the busiest worker did
    reading: float  # the workers waited for bytes of files
    decoding: float  # the workers decoded
    is_remote: bool  # whether bytes came from a server
    evicted: float  # frames evicted before their use, per decoded frame
    lacking_bytes: int  # how much more memory for decoded frames the order needs


def describe_limit(load: LoadShares) -> str:
    """Return what limits a run, with the figures that show it, and what would help. Pure."""
    if load.waited < _LITTLE_WAITING:
        return f"the training loop, which waited {load.waited:.0%} of its time for batches"
    if load.reading > _MUCH_READING:
        cure = "disk", "a faster disk or more memory for the system's file cache"
        if load.is_remote:
            cure = "network", "a nearer copy, `robostream cache warm` or a larger cache_limit"
        waited = f"workers waited {load.reading:.0%} of their time for bytes"
        return f"the {cure[0]}: {waited}; {cure[1]} would help"
    if load.lacking_bytes > 0 and load.evicted > _MANY_EVICTED:
        return (
            f"memory: {load.evicted:.0%} of the decoded frames were evicted before their use; "
            f"{format_bytes(load.lacking_bytes)} more for frame_cache_bytes, a frame_cache_dir, "
            "resize or a smaller episode_pool_size would help"
        )
    if load.busy >= _BUSY:
        is_decoding = load.decoding >= load.busy / 2
        recode = ", fewer cameras or `robostream recode`" if is_decoding else " or fewer cameras"
        return (
            f"{'decoding' if is_decoding else 'converting and copying frames'}: workers were busy "
            f"{load.busy:.0%} of their time and decoded {load.decoding:.0%} of it; more cores "
            f"(num_workers), resize{recode} would help"
        )
    return (
        f"the slowest worker: workers were busy {load.busy:.0%} of their time, the busiest "
        f"{load.busiest:.0%}; a larger prefetch_factor or more lanes would help"
    )


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
        self._total_samples = self._total_batches = self._lacking_bytes = 0
        self._total_wait_s = 0.0
        self.begin()

    def share_counters(self, lacking_bytes: int) -> int:
        """Move the counters to new memory that workers can share; return its descriptor.

        The workers have so many bytes too little for decoded frames.
        """
        self._lacking_bytes = lacking_bytes
        before = self.counters
        fd, memory = create_and_map(before.nbytes)
        self.counters = memory[: before.nbytes].view(np.float64).reshape(before.shape)
        self.counters[:] = before
        return fd

    def begin(self) -> None:
        """Begin a new epoch: its counts start at 0."""
        self._samples = self._batches = 0
        self._wait_s = self._first_batch_s = 0.0
        self._counters_before = self._counters_last = self.counters.copy()
        self._began = self._steady_since = self._last = time.perf_counter()

    def add(self, samples: int, waited_s: float) -> None:
        """Count one delivered batch, and the time that the consumer waited for it."""
        self._wait_s += waited_s
        if self._batches == 0:
            self._first_batch_s = waited_s
        elif self._batches == 1:
            # The shares leave out the start, in which workers only import and open files.
            self._counters_before, self._steady_since = self._counters_last, self._last
        self._total_wait_s += waited_s
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
        seconds = max(self._last - self._steady_since, 1e-9)
        waited_s = self._wait_s - (self._first_batch_s if self._batches > 1 else 0.0)
        # Up to the last batch: workers go on. They also build batches of the next epoch before it.
        done = np.maximum(self._counters_last - self._counters_before, 0)
        each = {name: np.minimum(done[:, n] / seconds, 1) for n, name in enumerate(COUNTERS)}
        total = dict(zip(COUNTERS, done.sum(axis=0).tolist(), strict=True))
        return LoadShares(
            waited=min(waited_s / seconds, 1.0),
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
