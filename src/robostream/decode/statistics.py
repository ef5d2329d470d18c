# SPDX-License-Identifier: Apache-2.0
"""Counters of decoding; those of several processes can be added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.storage import TRAFFIC

COUNTERS = (
    "images_delivered",
    "images_decoded",
    "picture_hits",
    "picture_evictions",
    "fetch_s",
    "decode_s",
    "convert_s",
    "copy_s",
    "file_hits",
    "file_misses",
    "file_evictions",
    *TRAFFIC,
)


class DecodeStatistics:
    """The counters of one process, in a row of memory that others may read."""

    def __init__(self, row: npt.NDArray[np.float64] | None = None) -> None:
        self._row = np.zeros(len(COUNTERS)) if row is None else row
        # A view of the same memory, through which one number is changed faster than through numpy.
        self._cells: Any = self._row.data

    def add(self, amounts: Sequence[float]) -> None:
        """Add to the counters, in the order of `COUNTERS`."""
        for column, amount in enumerate(amounts):
            if amount:
                self._cells[column] += amount

    def summary(self) -> dict[str, float]:
        """Return all counters by name, and two rates."""
        return summarise(self._row)


def summarise(row: npt.NDArray[np.float64]) -> dict[str, float]:
    """Return counters by name, with the decode amplification and the hit rate of files. Pure.

    Amplification is images decoded per image delivered. It is at least 1 if every frame is
    delivered once, and may be less where windows share frames.
    """
    counts = dict(zip(COUNTERS, row.tolist(), strict=True))
    looked_up = counts["file_hits"] + counts["file_misses"]
    return counts | {
        "amplification": counts["images_decoded"] / max(counts["images_delivered"], 1),
        "fetched_per_read": counts["bytes_fetched"] / max(counts["bytes_read"], 1),
        "file_hit_rate": counts["file_hits"] / max(looked_up, 1),
    }
