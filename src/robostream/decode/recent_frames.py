# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures kept for random access; those used longest ago are dropped first."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from robostream.decode.picture.arena import SlotMemory, allocate
from robostream.decode.picture.layout import PictureLayout


class KeptFrame(NamedTuple):
    """The bytes of a picture, and its layout in them."""

    memory: SlotMemory
    layout: PictureLayout


class RecentFrames:
    """At most `budget_bytes` of pictures, by file and frame number. For one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.nbytes = 0
        self.evictions = 0
        self._kept: OrderedDict[tuple[str, int], KeptFrame] = OrderedDict()

    def __contains__(self, frame: tuple[str, int]) -> bool:
        return frame in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, file: str, frame: int) -> KeptFrame | None:
        """Return a kept picture, which counts as used now."""
        kept = self._kept.get((file, frame))
        if kept is not None:
            self._kept.move_to_end((file, frame))
        return kept

    def add(self, file: str, frame: int, layout: PictureLayout) -> SlotMemory | None:
        """Return memory to write a picture to; None if it is larger than the whole budget."""
        if layout.nbytes > self.budget_bytes:
            return None
        self.forget(file, frame)
        memory: SlotMemory | None = None
        while self.nbytes + layout.nbytes > self.budget_bytes:
            _, oldest = self._kept.popitem(last=False)
            self.nbytes -= oldest.layout.nbytes
            self.evictions += 1
            # Use the dropped picture's memory: fresh pages would cost more than the copy.
            if oldest.layout.nbytes == layout.nbytes:
                memory = oldest.memory
        if memory is None:
            memory = allocate(layout.nbytes)
        self._kept[file, frame] = KeptFrame(memory, layout)
        self.nbytes += layout.nbytes
        return memory

    def forget(self, file: str, frame: int) -> None:
        """Forget one picture."""
        kept = self._kept.pop((file, frame), None)
        if kept is not None:
            self.nbytes -= kept.layout.nbytes

    def clear(self) -> None:
        """Forget all pictures."""
        self._kept.clear()
        self.nbytes = 0
