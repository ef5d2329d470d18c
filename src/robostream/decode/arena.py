# SPDX-License-Identifier: Apache-2.0
"""Memory of a fixed size, handed out in slots and reused: fresh pages cost more than copies."""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

# Blocks of this size are cut into slots of one size; cameras of different sizes share the budget.
_BLOCK_BYTES = 4 << 20
# FFmpeg's vector code may read a little past the end of a picture.
_MARGIN_BYTES = 4096
# Linux's value; the module names it from Python 3.13 on only.
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0


class SlotMemory(NamedTuple):
    """The bytes of a slot, and where they begin, worked out once: every picture asks for it."""

    content: npt.NDArray[np.uint8]
    address: int


@dataclass(slots=True)
class _Block:
    """A piece of memory cut into slots of one size."""

    start: int
    length: int
    slot_bytes: int
    first_slot: int
    used: int = 0

    @property
    def slots(self) -> range:
        return range(self.first_slot, self.first_slot + self.length // self.slot_bytes)


class Arena:
    """At most `budget_bytes` of slots in RAM.

    For one thread at a time. A slot is a number; memory is touched when a slot is first used.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._memory = _map(budget_bytes)
        self._cut_bytes = 0
        self._blocks: dict[int, list[_Block]] = {}
        self._places: list[_Block] = []
        self._slots: list[SlotMemory] = []
        self._free: dict[int, list[int]] = {}

    @property
    def num_slots(self) -> int:
        """Slots cut so far; all slot numbers lie below this."""
        return len(self._places)

    def slot_bytes(self, slot: int) -> int:
        """Return the size of a slot."""
        return self._places[slot].slot_bytes

    def available(self, nbytes: int) -> int:
        """Return how many more slots of this size can be taken."""
        whole, rest = divmod(len(self._memory) - self._cut_bytes, max(_BLOCK_BYTES, nbytes))
        uncut = whole * (max(_BLOCK_BYTES, nbytes) // nbytes) + rest // nbytes
        return len(self._free.get(nbytes, ())) + uncut

    def take(self, nbytes: int) -> int | None:
        """Return a slot of `nbytes`, the one freed last if there is one, or None."""
        taken = self.take_many(nbytes, 1)
        return taken[0] if taken else None

    def take_many(self, nbytes: int, count: int) -> list[int]:
        """Return slots of `nbytes`, those freed last first: `count`, or as many as there are."""
        free = self._free.setdefault(nbytes, [])
        while len(free) < count:
            length = min(max(_BLOCK_BYTES, nbytes), len(self._memory) - self._cut_bytes)
            if length < nbytes:
                break
            self._cut(self._cut_bytes, length, nbytes)
            self._cut_bytes += length
        taken = free[: -count - 1 : -1]
        del free[len(free) - len(taken) :]
        for slot in taken:
            self._places[slot].used += 1
        return taken

    def give(self, slot: int) -> None:
        """Take a slot back."""
        block = self._places[slot]
        block.used -= 1
        self._free[block.slot_bytes].append(slot)

    def memory(self, slot: int) -> SlotMemory:
        """Return a slot's memory."""
        return self._slots[slot]

    def num_taken(self, slots: range) -> int:
        """Return how many slots of a block are taken."""
        return self._places[slots.start].used

    def slots_in_the_way(self, nbytes: int) -> range:
        """Return the block of slots of another size that could be cut anew for this one.

        Empty if slots of this size exist already or no block is long enough.
        """
        if self._blocks.get(nbytes):
            return range(0)
        others = [b for blocks in self._blocks.values() for b in blocks if b.length >= nbytes]
        return min(others, key=lambda b: b.used).slots if others else range(0)

    def recut(self, slots: range, nbytes: int) -> None:
        """Cut the block of `slots`, all of them given back, into slots of another size."""
        block = self._places[slots.start]
        self._blocks[block.slot_bytes].remove(block)
        free = self._free[block.slot_bytes]
        free[:] = [slot for slot in free if slot not in slots]
        self._cut(block.start, block.length, nbytes)

    def _cut(self, start: int, length: int, nbytes: int) -> None:
        block = _Block(start, length, nbytes, self.num_slots)
        self._blocks.setdefault(nbytes, []).append(block)
        count = len(block.slots)
        self._places.extend([block] * count)
        contents = self._memory[start : start + count * nbytes].reshape(count, nbytes)
        address = contents.ctypes.data
        self._slots.extend(
            SlotMemory(content, address + place * nbytes) for place, content in enumerate(contents)
        )
        # Fresh memory is taken last.
        self._free.setdefault(nbytes, [])[:0] = reversed(block.slots)


def _map(budget_bytes: int) -> npt.NDArray[np.uint8]:
    if not budget_bytes:
        return np.empty(0, np.uint8)
    # Not reserved: only touched pages count, also when a process with a large budget forks.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, budget_bytes + _MARGIN_BYTES, flags=private)
    # Fewer, larger page faults: touching fresh memory is what a cold store spends its time on.
    memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8, budget_bytes)
