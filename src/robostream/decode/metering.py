# SPDX-License-Identifier: Apache-2.0
"""Counts of what was decoded and delivered, and the time that each kind of work took."""

from __future__ import annotations

import time
from dataclasses import dataclass

from robostream.storage import ByteSource


@dataclass(slots=True)
class Meter:
    """Counts and seconds since the last `take`. For one thread."""

    images_delivered: int = 0
    images_decoded: int = 0
    picture_hits: int = 0
    fetch_s: float = 0.0
    decode_s: float = 0.0
    convert_s: float = 0.0
    copy_s: float = 0.0

    @property
    def elsewhere_s(self) -> float:
        """Seconds spent on anything but decoding."""
        return self.fetch_s + self.convert_s + self.copy_s

    def take(
        self, *, picture_evictions: int, file_hits: int, file_misses: int, file_evictions: int
    ) -> tuple[float, ...]:
        """Return all counts in the order of `COUNTERS`, and set them to 0."""
        taken = (
            self.images_delivered,
            self.images_decoded,
            self.picture_hits,
            picture_evictions,
            self.fetch_s,
            self.decode_s,
            self.convert_s,
            self.copy_s,
            file_hits,
            file_misses,
            file_evictions,
        )
        self.images_delivered = self.images_decoded = self.picture_hits = 0
        self.fetch_s = self.decode_s = self.convert_s = self.copy_s = 0.0
        return taken


class MeteredSource:
    """A byte source whose reading time is added to a meter."""

    def __init__(self, source: ByteSource, meter: Meter) -> None:
        self.name = source.name
        self.identity = source.identity
        self._source = source
        self._meter = meter

    def size(self) -> int:
        """Return the number of bytes in the file."""
        return self._source.size()

    def version(self) -> str:
        """Return a text that changes when the file does."""
        return self._source.version()

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version; raise if it is known to have others."""
        self._source.expect(size, version)

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""
        began = time.perf_counter()
        content = self._source.read(start, stop)
        self._meter.fetch_s += time.perf_counter() - began
        return content

    def ensure_cached(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) close by."""
        self._source.ensure_cached(start, stop)
