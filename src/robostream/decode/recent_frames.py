# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures kept for random access, the ones used longest ago given up first."""

from __future__ import annotations

from typing import NamedTuple

from robostream.decode.picture.arena import SlotMemory, allocate
from robostream.decode.picture.layout import PictureLayout
from robostream.storage import Recent


class KeptFrame(NamedTuple):
    """A picture's bytes, and how it lies in them."""

    memory: SlotMemory
    layout: PictureLayout


class RecentFrames:
    """At most `budget_bytes` of pictures, by file and frame number. For one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self._kept: Recent[tuple[str, int], KeptFrame] = Recent(
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

    def add(self, file: str, frame: int, layout: PictureLayout) -> SlotMemory | None:
        """Return memory for a picture, to be filled now; None if the budget is less than it."""
        if layout.nbytes > self._kept.budget:
            return None
        self.forget(file, frame)
        memory: SlotMemory | None = None
        for oldest in self._kept.make_room(layout.nbytes):
            # Memory in use already: fresh pages cost more than copies.
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
