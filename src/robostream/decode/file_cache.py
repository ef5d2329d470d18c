# SPDX-License-Identifier: Apache-2.0
"""What is held open per video file: its byte source and its frame index, capped and least used."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class VideoDecoderCache(Generic[T]):
    """At most `max_files` files open at a time; the one used longest ago is let go. Thread-safe.

    Opening happens outside the lock: other files stay available while one is slow to open, and of
    two threads that open the same file at once, the second takes what the first made.
    """

    def __init__(self, open_file: Callable[[str], T], max_files: int | None) -> None:
        if max_files is not None and max_files < 1:
            raise ValueError(f"want room for at least one open file, got max_files={max_files}")
        self.hits = 0
        self.misses = 0
        self.evictions = 0
        self._open_file = open_file
        self._max_files = max_files
        self._files: OrderedDict[str, T] = OrderedDict()
        self._lock = threading.Lock()
        self._opening: dict[str, threading.Lock] = {}

    @property
    def size(self) -> int:
        """Number of files held open."""
        return len(self._files)

    @property
    def hit_rate(self) -> float:
        """Share of look-ups that found the file open."""
        return self.hits / max(self.hits + self.misses, 1)

    def get(self, file: str) -> T:
        """Return what is held for a file, opening it if need be."""
        held = self._look_up(file)
        if held is not None:
            return held
        with self._lock:
            opening = self._opening.setdefault(file, threading.Lock())
        with opening:
            with self._lock:
                if file in self._files:
                    return self._files[file]
            try:
                opened = self._open_file(file)
            finally:
                with self._lock:
                    self._opening.pop(file, None)
            self._hold(file, opened)
            return opened

    def clear(self) -> None:
        """Let go of all files; what is in use stays open until its user is done."""
        with self._lock:
            self._files.clear()

    def _hold(self, file: str, opened: T) -> None:
        with self._lock:
            self._files[file] = opened
            while self._max_files is not None and len(self._files) > self._max_files:
                self._files.popitem(last=False)
                self.evictions += 1

    def _look_up(self, file: str) -> T | None:
        with self._lock:
            held = self._files.get(file)
            if held is None:
                self.misses += 1
                return None
            self._files.move_to_end(file)
            self.hits += 1
            return held
