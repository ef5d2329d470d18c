# SPDX-License-Identifier: Apache-2.0
"""Decoded frames kept within a byte budget, the ones used furthest in the future given up first."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robostream.decode.arena import Arena, SlotMemory
from robostream.decode.frame_index import Int64s
from robostream.decode.render import Layout
from robostream.decode.slot_table import NEVER, NextUses, SlotTable

# A scan of all slots lists this many to give up, and serves as many new frames or a sixteenth of
# those kept, whichever is less: scans stay rare in a large store and exact in a small one.
_VICTIMS_PER_SCAN = 256


class Kept(NamedTuple):
    """A kept frame, pinned: its bytes stay until its slot is unpinned."""

    frame: int
    layout: Layout
    memory: SlotMemory
    slot: int


class FrameStore:
    """Keeps decoded frames. Thread-safe.

    With `next_uses` the clock is the furthest position served: a frame whose uses all lie more than
    `reorder` positions back is free, and of the others the one used furthest ahead goes first.
    Without it the clock counts accesses, and the frame used longest ago goes first.

    Unless `keep_used` is set, a frame goes as soon as its last known use is over. Its memory is
    then used again at once: memory never touched before costs more than a copy, and a store that
    kept all it can hold would touch its whole budget.
    """

    def __init__(
        self,
        budget_bytes: int,
        *,
        folder: Path | None,
        next_uses: NextUses | None,
        reorder: int,
        keep_used: bool,
    ) -> None:
        self.budget_bytes = budget_bytes
        self.next_uses = next_uses
        self.keeps_used = keep_used or next_uses is None
        self.evictions = 0
        self._lock = threading.Lock()
        self._arena = Arena(budget_bytes, folder)
        self._table = SlotTable()
        self._slots: dict[str, dict[int, int]] = {}
        self._victims: dict[int, deque[tuple[int, int]]] = {}
        self._entered_since_scan: dict[int, int] = defaultdict(int)
        self._clock = 0
        self._reorder = reorder

    @property
    def served(self) -> int:
        """The position up to which every sample has surely been served."""
        return self._clock - self._reorder

    def advance(self, position: int) -> None:
        """Note that a sample is being served; positions may come a little out of order."""
        with self._lock:
            self._clock = max(self._clock, position)

    def pin(self, file: str, frames: Iterable[int]) -> list[Kept]:
        """Return those of the frames that are kept, pinned."""
        table, arena = self._table, self._arena
        kept: list[Kept] = []
        with self._lock:
            known = self._slots.get(file)
            if known is None:
                return kept
            for frame in frames:
                slot = known.get(frame)
                if slot is not None:
                    table.pins[slot] += 1
                    kept.append(Kept(frame, table.layouts[slot], arena.memory(slot), slot))
            if self.next_uses is None:
                for one in kept:
                    self._touch(one.slot)
        return kept

    def unpin(self, kept: list[Kept]) -> None:
        """Let go of pinned frames, each used once more."""
        table = self._table
        with self._lock:
            for one in kept:
                slot = one.slot
                table.pins[slot] -= 1
                table.left[slot] -= 1
                if not self.keeps_used and table.left[slot] <= 0 and not table.pins[slot]:
                    self._drop(slot)

    def holds(self, file: str, frames: list[int]) -> list[bool]:
        """Return which frames are kept just now."""
        with self._lock:
            known = self._slots.get(file, {})
            return [frame in known for frame in frames]

    def capacity(self, layout: Layout | None) -> int:
        """Return how many frames of one layout the budget holds; 0 while the layout is unknown."""
        return 0 if layout is None else self.budget_bytes // layout.nbytes

    def room(self, layout: Layout, wanted: int) -> tuple[int, int]:
        """Return how many frames can be added freely, and beyond that, used before which position.

        The first number is exact only below `wanted`, the number of frames one would like to add.
        """
        with self._lock:
            free = self._arena.available(layout.nbytes)
            if free >= wanted:
                return free, NEVER
            victims = self._fresh_victims(layout.nbytes)
            free = self._arena.available(layout.nbytes)
            return free, victims[0][0] if victims else -NEVER

    def reserve(self, layout: Layout, due: Int64s) -> list[int]:
        """Return slots for frames next used at `due`, ascending: as many as deserve one.

        Each is to be filled and published, or released.
        """
        with self._lock:
            slots = self._arena.take_many(layout.nbytes, len(due))
            for at in due[len(slots) :].tolist():
                slot = self._take_from_furthest(layout.nbytes, at)
                if slot is None:
                    break
                slots.append(slot)
            self._table.grow(self._arena.num_slots)
        return slots

    def memory(self, slot: int) -> SlotMemory:
        """Return the memory of a reserved slot."""
        return self._arena.memory(slot)

    def publish(
        self, layout: Layout, file: str, frames: list[int], slots: list[int], uses: Int64s
    ) -> None:
        """Make filled slots known as frames of a file, with their next uses, a row each."""
        if not frames:
            return
        with self._lock:
            known = self._slots.setdefault(file, {})
            # A picture at the edge of two stretches may have been decoded with both.
            if not known.keys().isdisjoint(frames):
                new = [place for place, frame in enumerate(frames) if frame not in known]
                for place in set(range(len(slots))).difference(new):
                    self._arena.give(slots[place])
                slots = [slots[place] for place in new]
                frames = [frames[place] for place in new]
                uses = uses[new]
            known.update(zip(frames, slots, strict=True))
            self._table.enter(slots, file, frames, layout, uses)
            self._entered_since_scan[layout.nbytes] += len(slots)
            if self.next_uses is None:
                for slot in slots:
                    self._touch(slot)

    def release(self, slots: list[int]) -> None:
        """Give back slots that were reserved and not published."""
        with self._lock:
            for slot in slots:
                self._arena.give(slot)

    def clear(self) -> None:
        """Forget all frames and return the memory once nobody uses it."""
        with self._lock:
            self.budget_bytes = 0
            self._arena = Arena(0, None)
            self._table = SlotTable()
            self._slots.clear()
            self._victims.clear()

    def _touch(self, slot: int) -> None:
        # The least recently used counts as used furthest ahead.
        self._clock += 1
        self._table.set_next_use(slot, -self._clock)

    def _due(self, slots: Int64s) -> Int64s:
        return self._table.due(slots, -NEVER if self.next_uses is None else self.served)

    def _take_from_furthest(self, nbytes: int, due: int) -> int | None:
        """Return the slot of a frame used later than `due`, or None if there is none."""
        victims = self._fresh_victims(nbytes)
        if (free := self._arena.take(nbytes)) is not None:
            return free
        while victims and victims[0][0] > due:
            known_due, slot = victims.popleft()
            if self._may_go(slot, nbytes, known_due):
                self._drop(slot)
                self.evictions += 1
                return self._arena.take(nbytes)
        return None

    def _fresh_victims(self, nbytes: int) -> deque[tuple[int, int]]:
        victims = self._victims.get(nbytes)
        entered = self._entered_since_scan[nbytes]
        if not victims or entered >= min(_VICTIMS_PER_SCAN, self._arena.num_slots // 16):
            victims = self._victims[nbytes] = self._find_victims(nbytes)
            self._entered_since_scan[nbytes] = 0
        return victims

    def _may_go(self, slot: int, nbytes: int, known_due: int) -> bool:
        table = self._table
        is_same = table.frames[slot] >= 0 and self._arena.slot_bytes(slot) == nbytes
        is_idle = not table.pins[slot]
        return bool(is_same and is_idle and self._due(np.array([slot]))[0] == known_due)

    def _find_victims(self, nbytes: int) -> deque[tuple[int, int]]:
        """Drop the frames that are done with; return (due, slot) of those used furthest ahead."""
        slots = self._table.idle(nbytes)
        due = self._due(slots)
        if self.next_uses is not None and np.any(due == NEVER):
            self._table.refresh(slots[due == NEVER], self.served, self.next_uses)
            due = self._due(slots)
            for slot in slots[due == NEVER].tolist():
                self._drop(slot)
            slots, due = slots[due != NEVER], due[due != NEVER]
        if not len(slots):
            self._clear_other_sizes(nbytes)
        if len(slots) > _VICTIMS_PER_SCAN:
            furthest = np.argpartition(due, -_VICTIMS_PER_SCAN)[-_VICTIMS_PER_SCAN:]
            slots, due = slots[furthest], due[furthest]
        order = np.argsort(-due, kind="stable")
        return deque(zip(due[order].tolist(), slots[order].tolist(), strict=True))

    def _clear_other_sizes(self, nbytes: int) -> None:
        """Let frames of a size that has no slot yet in, at the cost of a block of another size."""
        slots = self._arena.slots_in_the_way(nbytes)
        held = [slot for slot in slots if self._table.frames[slot] >= 0]
        is_pinned = bool(np.any(self._table.pins[slots.start : slots.stop]))
        # A slot that is taken but holds no frame yet is being filled by another thread.
        if not len(slots) or is_pinned or len(held) != self._arena.num_taken(slots):
            return
        for slot in held:
            self._drop(slot)
        self.evictions += len(held)
        self._arena.recut(slots, nbytes)
        self._table.grow(self._arena.num_slots)

    def _drop(self, slot: int) -> None:
        file, frame = self._table.files[slot], int(self._table.frames[slot])
        slots = self._slots[file]
        del slots[frame]
        if not slots:
            del self._slots[file]
        self._table.leave(slot)
        self._arena.give(slot)
