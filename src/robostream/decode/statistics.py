# SPDX-License-Identifier: Apache-2.0
"""Counts and times of decoding: of one thread, of one process, and added up over processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from robostream.storage import TRAFFIC


@dataclass(slots=True)
class Meter:
    """Counts and seconds since the last `flush`. For one thread; `VideoFiles` locks its counts.

    `row` has all counts before that, in the order of `COUNTERS`; other processes may read it.
    """

    images_delivered: int = 0
    images_decoded: int = 0
    picture_hits: int = 0
    picture_evictions: int = 0
    fetch_s: float = 0.0
    decode_s: float = 0.0
    convert_s: float = 0.0
    copy_s: float = 0.0
    file_hits: int = 0
    file_misses: int = 0
    file_evictions: int = 0
    busy_s: float = 0.0
    row: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(len(COUNTERS)))

    @property
    def elsewhere_s(self) -> float:
        """Seconds spent on anything but decoding."""
        return self.fetch_s + self.convert_s + self.copy_s

    def flush(self, traffic: Sequence[float] = ()) -> None:
        """Add all counts, and those of requests, to the row; set them to 0."""
        amounts = *_all_counts(self), *traffic
        self.row[: len(amounts)] += amounts
        for name in _METERED:
            setattr(self, name, 0)

    def summary(self) -> dict[str, float]:
        """Return the counters of the row by name, and their rates."""
        return summarise(self.row)


_METERED: tuple[str, ...] = Meter.__slots__[:-1]
_all_counts = attrgetter(*_METERED)
COUNTERS: tuple[str, ...] = (*_METERED, *TRAFFIC)


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
