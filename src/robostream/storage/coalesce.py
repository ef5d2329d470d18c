# SPDX-License-Identifier: Apache-2.0
"""Fewer, larger reads for many small byte ranges."""

from __future__ import annotations

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
