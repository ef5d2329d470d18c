# SPDX-License-Identifier: Apache-2.0
"""A bandwidth all connections share, and a limit of requests per second."""

from __future__ import annotations

import asyncio
import time


class Bandwidth:
    """Lets bytes pass at a rate; who comes first is served first."""

    def __init__(self, bytes_per_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = 0.0

    async def take(self, nbytes: int) -> None:
        """Wait until so many more bytes have passed."""
        if not self._bytes_per_s:
            return
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + nbytes / self._bytes_per_s
        await asyncio.sleep(self._free_at - now)


class Allowance:
    """Requests allowed now: so many come in each second, and unused ones stay for a second."""

    def __init__(self, per_s: float) -> None:
        self._per_s = per_s
        self._left = max(per_s, 1.0)
        self._at = time.monotonic()

    def take(self) -> bool:
        """Return whether one more request is allowed."""
        if not self._per_s:
            return True
        now = time.monotonic()
        self._left = min(self._left + (now - self._at) * self._per_s, max(self._per_s, 1.0))
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
