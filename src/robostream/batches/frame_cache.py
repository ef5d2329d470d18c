# SPDX-License-Identifier: Apache-2.0
"""Decoded pictures kept from decoding to their last delivery, within a byte budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np

from robostream.batches.clip import Clip
from robostream.decode import BufferPool, FrameLayout, SlotMemory

# When the shelf is full, it looks through all kept pictures and lists this many that are delivered
# last. The list is used for as many new pictures, or for a sixteenth of the number of slots if that
# is less. So a large shelf is looked through rarely, and a small one has an exact list.
_VICTIMS_PER_SCAN = 1024


class FrameCache(Protocol):
    """Memory for decoded pictures of reels. For one thread.

    Attributes:
        evictions: How many pictures were dropped to make room for others.
        keeps_used: Whether pictures stay after their last delivery, for later epochs.
    """

    evictions: int
    keeps_used: bool

    def open(self, reel: Clip) -> None:
        """Note in a new reel which of its pictures are kept already."""

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return whether all pictures of an episode's frames [first, stop) are kept already."""

    def take(self, reel: Clip, picture: int, layout: FrameLayout) -> int | None:
        """Return a slot for a picture, or None if it is not to be kept."""

    def publish(self, slot: int, layout: FrameLayout) -> None:
        """Note that the picture of a slot has been written."""

    def check(self, reel: Clip, pictures: Iterable[int]) -> None:
        """Forget those of a reel's kept pictures whose bytes are damaged."""

    def memory(self, slot: int) -> SlotMemory:
        """Return the memory of a slot."""

    def release(self, slot: int) -> None:
        """Note that the picture in a slot is not needed again."""


class PrivateFrameCache:
    """Pictures of one process; each is dropped after its last delivery.

    When the budget is full, a new picture replaces the one that is delivered last of all, unless
    the new one is delivered even later. `memory` is that of a GPU, if pictures lie there.
    """

    keeps_used = False

    def __init__(self, budget_bytes: int, memory: Any = None) -> None:
        self.evictions = 0
        self._arena = BufferPool(budget_bytes, memory)
        self._owners: list[tuple[Clip, int] | None] = []
        self._victims: dict[int, deque[tuple[int, int]]] = {}
        self._taken_since_scan = 0

    def open(self, reel: Clip) -> None:
        """Do nothing: a new reel has no pictures here."""

    def has_all(self, camera: int, episode: int, first: int, stop: int) -> bool:
        """Return False: pictures of episodes that come again are not kept."""
        return False

    def take(self, reel: Clip, picture: int, layout: FrameLayout) -> int | None:
        """Return a slot for a picture, or None if all kept ones are delivered before it."""
        slot = self._arena.take(layout.nbytes)
        if slot is None:
            due = reel.due_of(picture)
            slot = self._take_from_furthest(layout.nbytes, due)
            if slot is None:
                return None
        while len(self._owners) <= slot:
            self._owners.append(None)
        self._owners[slot] = reel, picture
        self._taken_since_scan += 1
        return slot

    def publish(self, slot: int, layout: FrameLayout) -> None:
        """Do nothing: no other process reads this memory."""

    def check(self, reel: Clip, pictures: Iterable[int]) -> None:
        """Do nothing: this memory lies on no disk."""

    def memory(self, slot: int) -> SlotMemory:
        """Return the memory of a slot."""
        return self._arena.memory(slot)

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self._owners[slot] = None
        self._arena.give(slot)

    def _take_from_furthest(self, nbytes: int, due: int) -> int | None:
        victims = self._victims.get(nbytes)
        if not victims or self._taken_since_scan >= min(
            _VICTIMS_PER_SCAN, self._arena.num_slots // 16
        ):
            victims = self._victims[nbytes] = self._find_victims(nbytes)
            self._taken_since_scan = 0
        while victims and victims[0][0] > due:
            _, slot = victims.popleft()
            if self._may_go(slot, nbytes, due):
                self._drop(slot)
                return self._arena.take(nbytes)
        return self._arena.take(nbytes)

    def _find_victims(self, nbytes: int) -> deque[tuple[int, int]]:
        """Return (due, slot) of the kept pictures of a size that are delivered last."""
        by_reel: dict[Clip, tuple[list[int], list[int]]] = {}
        for slot, owner in enumerate(self._owners):
            if owner is not None and self._arena.slot_bytes(slot) == nbytes:
                pictures, slots = by_reel.setdefault(owner[0], ([], []))
                pictures.append(owner[1])
                slots.append(slot)
        if not by_reel:
            self._clear_other_sizes(nbytes)
            return deque()
        due = np.concatenate([r.due(np.array(p)) for r, (p, _) in by_reel.items()])
        kept = np.concatenate([np.array(s) for _, s in by_reel.values()])
        if len(kept) > _VICTIMS_PER_SCAN:
            furthest = np.argpartition(due, -_VICTIMS_PER_SCAN)[-_VICTIMS_PER_SCAN:]
            kept, due = kept[furthest], due[furthest]
        order = np.argsort(-due, kind="stable")
        return deque(zip(due[order].tolist(), kept[order].tolist(), strict=True))

    def _may_go(self, slot: int, nbytes: int, due: int) -> bool:
        # Since the list was made, the slot may have become free or have got another picture.
        owner = self._owners[slot]
        if owner is None or self._arena.slot_bytes(slot) != nbytes or owner[1] in owner[0].now:
            return False
        return owner[0].due_of(owner[1]) > due

    def _clear_other_sizes(self, nbytes: int) -> None:
        """Make slots of a size that has none yet, by dropping a block of pictures of other sizes.

        Nothing is dropped if the batch being built needs a picture of that block.
        """
        slots = self._arena.slots_in_the_way(nbytes)
        owners = [self._owners[slot] for slot in slots if slot < len(self._owners)]
        held = [owner for owner in owners if owner is not None]
        if not len(slots) or any(picture in reel.now for reel, picture in held):
            return
        for slot in slots:
            if slot < len(self._owners) and self._owners[slot] is not None:
                self._drop(slot)
        self._arena.recut(slots, nbytes)

    def _drop(self, slot: int) -> None:
        owner = self._owners[slot]
        assert owner is not None
        reel, picture = owner
        reel.slots[picture] = -1
        self.evictions += 1
        self.release(slot)
