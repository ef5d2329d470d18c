# SPDX-License-Identifier: Apache-2.0
"""Caches of decoded frames: by next use for streaming, least recently used for random access.

The third, for whole selections, is in `shared_frame_cache.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from robostream.decode.buffer_pool import BufferPool, allocate
from robostream.decode.clip import Clip, Uses
from robostream.decode.frames import DecodedFrame, PackedFrame
from robostream.storage import LruCache

# When the cache is full, it looks through all frames and lists this many that are delivered last.
# The list serves as many new frames, or a sixteenth of the number of slots if that is less. So a
# large cache is looked through rarely, and a small one has an exact list.
_VICTIMS_PER_SCAN = 1024

# Writes a decoded frame into memory.
Pack = Callable[[DecodedFrame, PackedFrame], None]


class FrameCache:
    """Packed frames of clips; their slots are in `Uses.slots`. For one thread.

    By default nothing is to be opened, released or checked.

    Attributes:
        keeps_used: Whether frames stay after their last delivery.
        has_checksums: Whether frames may be found damaged, because they lie on a disk.
    """

    keeps_used: bool = False
    has_checksums: bool = False

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames of a clip in some slots; they count as used."""
        raise NotImplementedError

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame of an open clip; return False if it is not to be cached."""
        raise NotImplementedError

    def open(self, uses: Uses) -> None:
        """Begin to cache frames of a clip; find those that are cached already."""

    def close(self, uses: Uses) -> None:
        """Release all frames of a clip that are of no use to others."""

    def release(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some frames that are cached and of no use to others."""

    def drop_damaged(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some cached frames whose bytes are damaged."""

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all frames [first, stop) of an episode are cached for later epochs."""
        return False

    def has_room(self, frames: int) -> bool:
        """Return whether so many more frames can be cached without an eviction."""
        return self.keeps_used

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        return 0


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

    def has_room(self, frames: int) -> bool:
        """Return whether so many more frames of the largest size can be cached."""
        return self._pool.has_room(frames)

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        evictions, self._evictions = self._evictions, 0
        return evictions

    def _take_furthest(self, nbytes: int, due: int) -> int | None:
        """Return a slot, if need be of a frame that is delivered after `due`."""
        victims = self._victims.get(nbytes)
        if not victims or self._added_since_scan >= min(
            _VICTIMS_PER_SCAN, self._pool.num_slots // 16
        ):
            victims = self._victims[nbytes] = self._find_victims(nbytes)
            self._added_since_scan = 0
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

    def _find_victims(self, nbytes: int) -> deque[tuple[int, int]]:
        """Return (due, slot) of the cached frames of a size that are delivered last."""
        by_clip: dict[Uses, tuple[list[int], list[int]]] = {}
        for slot, owner in enumerate(self._owners):
            if owner is not None and self._pool.slot_bytes(slot) == nbytes:
                frames, slots = by_clip.setdefault(owner[0], ([], []))
                frames.append(owner[1])
                slots.append(slot)
        if not by_clip:
            self._make_room_for_size(nbytes)
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


class _CachedFrame(NamedTuple):
    """A cached frame, and its file and number."""

    packed: PackedFrame
    key: tuple[str, int]


class FileSlots:
    """The slots of one file's frames, among those of all files."""

    def __init__(self, file: str, slots: dict[tuple[str, int], int]) -> None:
        self._file = file
        self._slots = slots

    def __getitem__(self, frame: int) -> int:
        return self._slots.get((self._file, frame), -1)

    def __setitem__(self, frame: int, slot: int) -> None:
        self._slots[self._file, frame] = slot


class LruFrameCache(FrameCache):
    """Frames by file and number, at most `budget_bytes`; the least recently used are evicted.

    They stay when their file is closed.

    Attributes:
        budget_bytes: The budget.
        next_slot: The slot of the next frame that is added; slots are not reused.
    """

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.keeps_used = budget_bytes > 0
        self._slots: dict[tuple[str, int], int] = {}
        self._frames: LruCache[int, _CachedFrame] = LruCache(
            budget_bytes,
            weigh=lambda cached: cached.packed.layout.nbytes,
            drop=lambda cached: self._slots.pop(cached.key),
        )
        self.next_slot = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all frames."""
        return self._frames.weight

    def slots(self, clip: Clip) -> FileSlots:
        """Return the slots of a file's frames; they change with the cache."""
        return FileSlots(clip.file.name, self._slots)

    def packed(self, clip: Clip, slots: Sequence[int]) -> list[PackedFrame]:
        """Return the frames in some slots; they count as used now."""
        found = map(self._frames.get, slots)
        return [cached.packed for cached in found if cached is not None]

    def add(self, uses: Uses, frame: int, decoded: DecodedFrame, pack: Pack) -> bool:
        """Cache a frame that is not cached yet; return False if it exceeds the whole budget."""
        layout = decoded.layout
        if layout.nbytes > self.budget_bytes:
            return False
        content = None
        for oldest in self._frames.evict_for(layout.nbytes):
            # Reuse the evicted frame's memory: fresh pages would cost more than the copy.
            if oldest.packed.layout.nbytes == layout.nbytes:
                content, address, _ = oldest.packed
        if content is None:
            content, address = allocate(layout.nbytes)
        packed = PackedFrame(content, address, layout)
        pack(decoded, packed)
        self._frames.put(self.next_slot, _CachedFrame(packed, (uses.clip.file.name, frame)))
        uses.slots[frame] = self.next_slot
        self.next_slot += 1
        return True

    def release(self, uses: Uses, frames: Sequence[int]) -> None:
        """Drop those of some frames that are cached."""
        for frame in frames:
            self._frames.forget(uses.slots[frame])

    def take_evictions(self) -> int:
        """Return how many frames were evicted since the last call."""
        return self._frames.take_evictions()

    def forget_since(self, slot: int) -> None:
        """Drop the frames that were added when `next_slot` was `slot` or more."""
        for newer in [number for number in self._frames if number >= slot]:
            self._frames.forget(newer)

    def clear(self) -> None:
        """Drop all frames."""
        self._frames.clear()
