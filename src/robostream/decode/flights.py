# SPDX-License-Identifier: Apache-2.0
"""One thread at a time does a piece of work; others that want it learn when it is done."""

from __future__ import annotations

import threading
from collections.abc import Hashable


class Flights:
    """Work in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._landings: dict[Hashable, threading.Event] = {}

    def claim(self, key: Hashable) -> threading.Event | None:
        """Return None to the one who is to do the work, and who then must call `land`.

        Another gets what is set once it is done; waiting for it is left to them.
        """
        with self._lock:
            landing = self._landings.get(key)
            if landing is None:
                self._landings[key] = threading.Event()
            return landing

    def land(self, key: Hashable) -> None:
        """Say that the work is done, well or not."""
        with self._lock:
            landing = self._landings.pop(key)
        landing.set()
