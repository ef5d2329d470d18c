# SPDX-License-Identifier: Apache-2.0
"""Memory of a fixed size, handed out in slots. Slots are reused, because fresh pages are slow."""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

# Blocks of this size are cut into slots of one size; cameras of different sizes share the budget.
_BLOCK_BYTES = 4 << 20
# FFmpeg's vector code may read a little past the end of a frame.
_MARGIN_BYTES = 256
# Vector instructions are fastest with frames that begin at a multiple of this.
_ALIGN_BYTES = 64
# The value on Linux; the module mmap has a name for it only from Python 3.13 on.
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0


class SlotMemory(NamedTuple):
    """The bytes of a slot, and their address, stored because numpy is slow to give it."""

    content: npt.NDArray[np.uint8]
    address: int


def allocate(nbytes: int) -> SlotMemory:
    """Return memory for one frame outside any pool."""
    memory = np.empty(nbytes + _MARGIN_BYTES, np.uint8)
    address = memory.ctypes.data
    first = -address % _ALIGN_BYTES
    return SlotMemory(memory[first : first + nbytes], address + first)


class _Block(NamedTuple):
    """A piece of memory cut into slots of one size."""

    start: int
    length: int
    slot_bytes: int
    slots: list[int]


class BufferPool:
    """At most `budget_bytes` of slots in RAM, or in other memory of that size (a tensor).

    For one thread at a time. A slot is a number; in RAM, it takes memory once it is written to.
    """

    def __init__(self, budget_bytes: int, memory: Any = None) -> None:
        self._memory = _map(budget_bytes) if memory is None else memory
        self._address = self._memory.ctypes.data if memory is None else memory.data_ptr()
        self._cut_bytes = 0
        self._blocks: dict[int, list[_Block]] = {}
        self._block_of: dict[int, _Block] = {}
        self._slots: dict[int, SlotMemory] = {}
        self._free: dict[int, list[int]] = {}
        self._unused_numbers: list[int] = []

    @property
    def num_slots(self) -> int:
        """All slot numbers lie below this."""
        return len(self._slots)

    def slot_bytes(self, slot: int) -> int:
        """Return the size of a slot."""
        return self._block_of[slot].slot_bytes

    def take(self, nbytes: int) -> int | None:
        """Return a free slot of `nbytes`, the one freed last first; None if there is no room."""
        free = self._free.get(nbytes)
        if not free:
            length = min(max(_BLOCK_BYTES, nbytes), len(self._memory) - self._cut_bytes)
            if length < nbytes:
                return None
            self._cut(self._cut_bytes, length, nbytes)
            self._cut_bytes += length
            free = self._free[nbytes]
        return free.pop()

    def has_room(self, count: int) -> bool:
        """Return whether so many more slots of the largest size in use can be taken."""
        nbytes = max(self._free, default=0)
        if not nbytes:
            return False
        block = max(_BLOCK_BYTES, nbytes)
        blocks, rest = divmod(len(self._memory) - self._cut_bytes, block)
        return count <= len(self._free[nbytes]) + blocks * (block // nbytes) + rest // nbytes

    def give(self, slot: int) -> None:
        """Give a slot back."""
        self._free[self._block_of[slot].slot_bytes].append(slot)

    def memory(self, slot: int) -> SlotMemory:
        """Return a slot's memory."""
        return self._slots[slot]

    def slots_in_the_way(self, nbytes: int) -> Sequence[int]:
        """Return the slots of the block of another size that is cheapest to cut anew for this size.

        Empty if slots of this size exist already or no block is long enough.
        """
        if self._blocks.get(nbytes):
            return ()
        others = [b for blocks in self._blocks.values() for b in blocks if b.length >= nbytes]
        if not others:
            return ()
        free = {slot for slots in self._free.values() for slot in slots}
        return min(others, key=lambda b: len(b.slots) - len(free.intersection(b.slots))).slots

    def recut(self, slots: Sequence[int], nbytes: int) -> None:
        """Cut the block of `slots`, all of them given back, into slots of another size.

        The new slots reuse the numbers of the old ones.
        """
        block = self._block_of[slots[0]]
        # Compared by identity: two blocks are never the same memory.
        self._blocks[block.slot_bytes] = [
            b for b in self._blocks[block.slot_bytes] if b is not block
        ]
        gone = set(slots)
        free = self._free[block.slot_bytes]
        free[:] = [slot for slot in free if slot not in gone]
        self._unused_numbers += reversed(slots)
        self._cut(block.start, block.length, nbytes)

    def _cut(self, start: int, length: int, nbytes: int) -> None:
        count = length // nbytes
        block = _Block(start, length, nbytes, [])
        contents = self._memory[start : start + count * nbytes].reshape(count, nbytes)
        address = self._address + start
        for place, content in enumerate(contents):
            number = self._unused_numbers.pop() if self._unused_numbers else self.num_slots
            self._block_of[number] = block
            self._slots[number] = SlotMemory(content, address + place * nbytes)
            block.slots.append(number)
        self._blocks.setdefault(nbytes, []).append(block)
        # Slots that were never written to are taken last.
        self._free.setdefault(nbytes, [])[:0] = reversed(block.slots)


def _map(budget_bytes: int) -> npt.NDArray[np.uint8]:
    if not budget_bytes:
        return np.empty(0, np.uint8)
    # The system reserves nothing: only pages that were written to count, also after a fork.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, budget_bytes + _MARGIN_BYTES, flags=private)
    # With large pages there are fewer page faults, which cost most while the memory fills up.
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8, budget_bytes)
