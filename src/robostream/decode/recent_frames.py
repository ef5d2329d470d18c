# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures kept for random access; those used longest ago are dropped first."""

from __future__ import annotations

from typing import NamedTuple

from robostream.decode.buffer_pool import SlotMemory, allocate
from robostream.decode.frames import FrameLayout
from robostream.storage import LruCache


class KeptFrame(NamedTuple):
    """The bytes of a picture, and its layout in them."""

    memory: SlotMemory
    layout: FrameLayout


class RecentFrames:
    """At most `budget_bytes` of pictures, by file and frame number. For one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self._kept: LruCache[tuple[str, int], KeptFrame] = LruCache(
            budget_bytes, weigh=lambda kept: kept.layout.nbytes
        )

    @property
    def budget_bytes(self) -> int:
        """Bytes that pictures may take."""
        return self._kept.budget

    @property
    def nbytes(self) -> int:
        """Bytes of all kept pictures."""
        return self._kept.weight

    def take_evictions(self) -> int:
        """Return how many pictures were given up since the last call."""
        return self._kept.take_evictions()

    def __contains__(self, frame: tuple[str, int]) -> bool:
        return frame in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, file: str, frame: int) -> KeptFrame | None:
        """Return a kept picture, which counts as used now."""
        return self._kept.get((file, frame))

    def add(self, file: str, frame: int, layout: FrameLayout) -> SlotMemory | None:
        """Return memory to write a picture to; None if it is larger than the whole budget."""
        if layout.nbytes > self._kept.budget:
            return None
        self.forget(file, frame)
        memory: SlotMemory | None = None
        for oldest in self._kept.evict_for(layout.nbytes):
            # Use the dropped picture's memory: fresh pages would cost more than the copy.
            if oldest.layout.nbytes == layout.nbytes:
                memory = oldest.memory
        if memory is None:
            memory = allocate(layout.nbytes)
        return self._kept.put((file, frame), KeptFrame(memory, layout)).memory

    def forget(self, file: str, frame: int) -> None:
        """Forget one picture."""
        self._kept.forget((file, frame))

    def clear(self) -> None:
        """Forget all pictures."""
        self._kept.clear()
