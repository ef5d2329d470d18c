# SPDX-License-Identifier: Apache-2.0
"""One thread at a time does a piece of work; others that want it wait for the result."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager


class Flights:
    """Work in progress by key. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._landed: dict[Hashable, threading.Event] = {}

    @contextmanager
    def board(self, key: Hashable) -> Iterator[bool]:
        """Give True to the one who is to do the work; others get False once it is done. Blocks."""
        with self._lock:
            landed = self._landed.get(key)
            if landed is None:
                mine = self._landed[key] = threading.Event()
        if landed is not None:
            landed.wait()
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                del self._landed[key]
            mine.set()
