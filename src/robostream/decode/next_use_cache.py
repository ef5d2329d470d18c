# SPDX-License-Identifier: Apache-2.0
"""The decoded frames that one process keeps until their last delivery, in memory of a fixed size.

The memory is handed out in slots, which are reused, because fresh pages are slow.
"""

from __future__ import annotations

import contextlib
import mmap
import sys
from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.decode.clip import NEVER, Clip, Uses
from robostream.decode.frame_cache import FrameCache, Pack
from robostream.decode.frames import MARGIN_BYTES, DecodedFrame, PackedFrame, SlotMemory

# Blocks of this size are cut into slots of one size; cameras of different sizes share the budget.
_BLOCK_BYTES = 4 << 20
# The value on Linux; the module mmap has a name for it only from Python 3.13 on.
_MAP_NORESERVE = 0x4000 if sys.platform == "linux" else 0
# When the cache is full, it looks through all frames and lists this many that are delivered last.
# The list serves as many new frames, or a sixteenth of the number of slots if that is less. So a
# large cache is looked through rarely, and a small one has an exact list.
_VICTIMS_PER_SCAN = 1024


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
        self._blocks: list[_Block] = []
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

    @property
    def sizes(self) -> set[int]:
        """The sizes of the slots."""
        return {block.slot_bytes for block in self._blocks}

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
        others = [block for block in self._blocks if block.length >= nbytes]
        if not others or any(block.slot_bytes == nbytes for block in self._blocks):
            return ()
        free = {slot for slots in self._free.values() for slot in slots}
        return min(others, key=lambda b: len(b.slots) - len(free.intersection(b.slots))).slots

    def recut(self, slots: Sequence[int], nbytes: int) -> None:
        """Cut the block of `slots`, all of them given back, into slots of another size.

        The new slots reuse the numbers of the old ones.
        """
        block = self._block_of[slots[0]]
        # Compared by identity: two blocks are never the same memory.
        self._blocks = [other for other in self._blocks if other is not block]
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
        self._blocks.append(block)
        # Slots that were never written to are taken last.
        self._free.setdefault(nbytes, [])[:0] = reversed(block.slots)


def _map(budget_bytes: int) -> npt.NDArray[np.uint8]:
    if not budget_bytes:
        return np.empty(0, np.uint8)
    # The system reserves nothing: only pages that were written to count, also after a fork.
    private = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    memory = mmap.mmap(-1, budget_bytes + MARGIN_BYTES, flags=private)
    # With large pages there are fewer page faults, which cost most while the memory fills up.
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8, budget_bytes)


class NextUseCache(FrameCache):
    """Frames of one process; each is dropped after its last delivery.

    When the budget is full, a new frame replaces the one that is delivered last of all, unless
    the new one is delivered even later. `memory` is that of a GPU, if frames lie there.
    """

    def __init__(self, budget_bytes: int, memory: Any = None) -> None:
        self._pool = BufferPool(budget_bytes, memory)
        self._owners: list[tuple[Uses, int] | None] = []
        self._packed: dict[int, PackedFrame] = {}
        self._victims: dict[int, deque[tuple[int, int]]] = {}
        self._added_since_scan = 0
        self._evictions = 0

    def close(self, uses: Uses) -> None:
        """Drop all frames of a clip."""
        self.release(uses, range(len(uses.clip)))

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames in some slots."""
        packed = self._packed
        return [packed[slot] for slot in slots]

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame; return False if all cached ones are delivered before it."""
        layout = decoded.layout
        slot = self._pool.take(layout.nbytes)
        if slot is None:
            slot = self._take_furthest(layout.nbytes, uses.due_of(frame))
            if slot is None:
                return False
        packed = self._packed.get(slot)
        if packed is None or packed.layout is not layout:
            packed = self._packed[slot] = PackedFrame(*self._pool.memory(slot), layout)
        pack(decoded, packed)
        while len(self._owners) <= slot:
            self._owners.append(None)
        self._owners[slot] = uses, frame
        uses.slots[frame] = slot
        self._added_since_scan += 1
        return True

    def release(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some frames that are cached."""
        slots = uses.slots
        for frame in frames:
            slot = slots[frame]
            if slot >= 0:
                slots[frame] = -1
                self._owners[slot] = None
                self._pool.give(slot)

    def has_room(self, frames: int, until: int = NEVER) -> bool:
        """Return whether so many more frames of any one size can be cached.

        Only frames that are delivered after the next `until` steps may be evicted for them.
        """
        if self._pool.has_room(frames):
            return True
        sizes = self._pool.sizes if until < NEVER else ()
        return bool(sizes) and all(self._has_late(nbytes, frames, until) for nbytes in sizes)

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        evictions, self._evictions = self._evictions, 0
        return evictions

    def _take_furthest(self, nbytes: int, due: int) -> int | None:
        """Return a slot, if need be of a frame that is delivered after `due`."""
        victims = self._victims_of(nbytes, least=1)
        if not victims:
            self._make_room_for_size(nbytes)
        while victims and victims[0][0] > due:
            _, slot = victims.popleft()
            owner = self._owners[slot]
            # Since the list was made, the slot may have become free or have got another frame.
            if owner is None or self._pool.slot_bytes(slot) != nbytes:
                continue
            uses, frame = owner
            if frame not in uses.now and uses.due_of(frame) > due:
                self._evict(uses, frame)
                break
        return self._pool.take(nbytes)

    def _has_late(self, nbytes: int, frames: int, until: int) -> bool:
        """Return whether so many cached frames of a size are delivered after `until` steps."""
        victims = self._victims_of(nbytes, least=frames)
        if len(victims) < frames:
            return False
        owner = self._owners[victims[frames - 1][1]]
        return owner is not None and owner[0].due_of(owner[1]) > until

    def _victims_of(self, nbytes: int, *, least: int) -> deque[tuple[int, int]]:
        """Return the victims of a size; the list is made anew if it is old or has too few."""
        victims = self._victims.get(nbytes, ())
        age = min(_VICTIMS_PER_SCAN, self._pool.num_slots // 16)
        if len(victims) < least or self._added_since_scan >= age:
            self._victims[nbytes] = self._find_victims(nbytes)
            self._added_since_scan = 0
        return self._victims[nbytes]

    def _find_victims(self, nbytes: int) -> deque[tuple[int, int]]:
        """Return (due, slot) of the cached frames of a size that are delivered last."""
        by_clip: dict[Uses, tuple[list[int], list[int]]] = {}
        for slot, owner in enumerate(self._owners):
            if owner is not None and self._pool.slot_bytes(slot) == nbytes:
                frames, slots = by_clip.setdefault(owner[0], ([], []))
                frames.append(owner[1])
                slots.append(slot)
        if not by_clip:
            return deque()
        due = np.concatenate([uses.due(np.array(f)) for uses, (f, _) in by_clip.items()])
        cached = np.concatenate([np.array(slots) for _, slots in by_clip.values()])
        if len(cached) > _VICTIMS_PER_SCAN:
            furthest = np.argpartition(due, -_VICTIMS_PER_SCAN)[-_VICTIMS_PER_SCAN:]
            cached, due = cached[furthest], due[furthest]
        order = np.argsort(-due, kind="stable")
        return deque(zip(due[order].tolist(), cached[order].tolist(), strict=True))

    def _make_room_for_size(self, nbytes: int) -> None:
        """Make slots of a size that has none yet, by evicting a block of frames of another size.

        Nothing is evicted if the batches being built need a frame of that block.
        """
        slots = self._pool.slots_in_the_way(nbytes)
        taken = (self._owners[slot] for slot in slots if slot < len(self._owners))
        owners = [owner for owner in taken if owner is not None]
        if not slots or any(frame in uses.now for uses, frame in owners):
            return
        for owner in owners:
            self._evict(*owner)
        self._pool.recut(slots, nbytes)
        for slot in slots:
            self._packed.pop(slot, None)

    def _evict(self, uses: Uses, frame: int) -> None:
        self._evictions += 1
        self.release(uses, (frame,))
