# SPDX-License-Identifier: Apache-2.0
"""Counts and seconds of decoding, per process and summed over processes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from multiprocessing.sharedctypes import RawArray
from typing import Any

import numpy as np
import numpy.typing as npt

COUNTERS = (
    "images_delivered",
    "images_decoded",
    "store_hits",
    "store_evictions",
    "fetch_s",
    "decode_s",
    "convert_s",
    "copy_s",
    "file_hits",
    "file_misses",
    "file_evictions",
)


class StatisticsBoard:
    """Counters of several processes in memory they share; made before the processes start.

    Each process adds into a row of its own, so nothing is locked between them; a total is the sum
    of the rows. It reaches a process by fork or as an argument of a `multiprocessing` process.
    """

    def __init__(self, num_processes: int) -> None:
        self._shared: Any = RawArray("d", num_processes * len(COUNTERS))

    def row(self, process: int) -> npt.NDArray[np.float64]:
        """Return the row one process adds into."""
        row: npt.NDArray[np.float64] = self._rows()[process]
        return row

    def total(self) -> dict[str, float]:
        """Return the sums over all processes, and what follows from them."""
        return summarise(self._rows().sum(axis=0))

    def _rows(self) -> npt.NDArray[np.float64]:
        return np.frombuffer(self._shared, np.float64).reshape(-1, len(COUNTERS))


class DecodeStatistics:
    """The counters of one process. Thread-safe."""

    def __init__(self, row: npt.NDArray[np.float64] | None = None) -> None:
        self._row = np.zeros(len(COUNTERS)) if row is None else row
        # The same memory; a number in it is changed quicker through this than through numpy.
        self._cells: Any = self._row.data
        self._lock = threading.Lock()

    def add(self, amounts: Sequence[float]) -> None:
        """Add to the counters, in the order of `COUNTERS`."""
        with self._lock:
            for column, amount in enumerate(amounts):
                if amount:
                    self._cells[column] += amount

    def summary(self) -> dict[str, float]:
        """Return all counters, and what follows from them."""
        with self._lock:
            return summarise(self._row)


def summarise(row: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return counters by name, with the decode amplification and the hit rate of files. Pure.

    Amplification is images decoded per image delivered: 1 is ideal for frames wanted once, less is
    possible when windows share frames.
    """
    counts = dict(zip(COUNTERS, row.tolist(), strict=True))
    looked_up = counts["file_hits"] + counts["file_misses"]
    return counts | {
        "amplification": counts["images_decoded"] / max(counts["images_delivered"], 1),
        "file_hit_rate": counts["file_hits"] / max(looked_up, 1),
    }
