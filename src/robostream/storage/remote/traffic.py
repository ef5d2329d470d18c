# SPDX-License-Identifier: Apache-2.0
"""What was asked of servers, and how it went."""

from __future__ import annotations

import threading

TRAFFIC = (
    "requests",
    "bytes_fetched",
    "bytes_read",
    "retries",
    "throttled_s",
    "stalls",
)


class Traffic:
    """Counts by the names of `TRAFFIC`, since they were last taken. Thread-safe.

    A request is a question to a server, answered or not; a retry one that was asked again. Bytes
    read are those that readers got, from a server or from the cache. A second is throttled if it
    was spent waiting because a server asked for it; a stall is an answer that stopped coming.
    """

    def __init__(self) -> None:
        self._counts = dict.fromkeys(TRAFFIC, 0.0)
        self._lock = threading.Lock()

    def add(self, **amounts: float) -> None:
        """Add to counts by name."""
        with self._lock:
            for name, amount in amounts.items():
                self._counts[name] += amount

    def take(self) -> tuple[float, ...]:
        """Return everything in the order of `TRAFFIC`, and begin anew."""
        with self._lock:
            taken = tuple(self._counts[name] for name in TRAFFIC)
            self._counts = dict.fromkeys(TRAFFIC, 0.0)
        return taken
