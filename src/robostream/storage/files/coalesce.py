# SPDX-License-Identifier: Apache-2.0
"""Fewer, larger reads for many small byte ranges."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, stop) of one file."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"want 0 <= start < stop, got start={self.start}, stop={self.stop}")


def coalesce(
    ranges: Iterable[ByteRange], *, max_gap_bytes: int, max_read_bytes: int
) -> list[ByteRange]:
    """Return ascending reads that cover all `ranges`. Pure.

    Two neighbours become one read when at most `max_gap_bytes` lie between them and the read stays
    within `max_read_bytes`; a single range longer than that stays whole.
    """
    reads: list[ByteRange] = []
    for wanted in sorted(ranges, key=lambda r: (r.start, r.stop)):
        if reads:
            last = reads[-1]
            stop = max(last.stop, wanted.stop)
            near = wanted.start - last.stop <= max_gap_bytes
            if wanted.stop <= last.stop or (near and stop - last.start <= max_read_bytes):
                reads[-1] = ByteRange(last.start, stop)
                continue
        reads.append(wanted)
    return reads


def lean_gap(ranges: Iterable[ByteRange], most_waste: float) -> int:
    """Return the widest gap for `coalesce` that adds at most a share of the wanted bytes. Pure."""
    reads = coalesce(ranges, max_gap_bytes=0, max_read_bytes=1 << 62)
    gaps = sorted(after.start - before.stop for before, after in itertools.pairwise(reads))
    left = int(most_waste * sum(read.stop - read.start for read in reads))
    for gap in gaps:
        left -= gap
        if left < 0:
            return gap - 1
    return gaps[-1] if gaps else 0
