# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures kept for random access, the ones used longest ago given up first."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from robostream.decode.arena import Arena, SlotMemory
from robostream.decode.render import Layout


class _Kept(NamedTuple):
    slot: int
    layout: Layout


class RecentFrames:
    """At most `budget_bytes` of pictures, by file and frame number. For one thread."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.evictions = 0
        self._arena = Arena(budget_bytes)
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()

    def __contains__(self, frame: tuple[str, int]) -> bool:
        return frame in self._kept

    def find(self, file: str, frame: int) -> tuple[SlotMemory, Layout] | None:
        """Return a kept picture, which counts as used now."""
        kept = self._kept.get((file, frame))
        if kept is None:
            return None
        self._kept.move_to_end((file, frame))
        return self._arena.memory(kept.slot), kept.layout

    def add(self, file: str, frame: int, layout: Layout) -> SlotMemory | None:
        """Return memory for a picture that is to be filled now; None if the budget holds none."""
        slot = self._arena.take(layout.nbytes)
        while slot is None and self._kept:
            self._drop_oldest(layout.nbytes)
            slot = self._arena.take(layout.nbytes)
        if slot is None:
            return None
        self._kept[file, frame] = _Kept(slot, layout)
        return self._arena.memory(slot)

    def capacity(self, layout: Layout) -> int:
        """Return how many pictures of one layout the budget holds."""
        return self.budget_bytes // layout.nbytes

    def clear(self) -> None:
        """Forget all pictures and return the memory."""
        self._kept.clear()
        self._arena = Arena(0)
        self.budget_bytes = 0

    def forget(self, file: str, frame: int) -> None:
        """Forget one picture."""
        kept = self._kept.pop((file, frame), None)
        if kept is not None:
            self._arena.give(kept.slot)

    def _drop_oldest(self, nbytes: int) -> None:
        """Give up the oldest picture of a size, or a block of another size if there is none."""
        name = next((n for n, kept in self._kept.items() if kept.layout.nbytes == nbytes), None)
        if name is not None:
            self._arena.give(self._kept.pop(name).slot)
            self.evictions += 1
            return
        slots = self._arena.slots_in_the_way(nbytes)
        for name in [n for n, kept in self._kept.items() if not slots or kept.slot in slots]:
            self._arena.give(self._kept.pop(name).slot)
            self.evictions += 1
        if slots:
            self._arena.recut(slots, nbytes)
