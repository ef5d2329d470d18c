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
        self._most = max(per_s, 1.0)
        self._left = self._most
        self._at_s = 0.0

    def take(self, now_s: float) -> bool:
        """Return whether one more request is allowed at a time of a clock that never goes back."""
        if not self._per_s:
            return True
        self._left = min(self._left + (now_s - self._at_s) * self._per_s, self._most)
        self._at_s = now_s
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True
