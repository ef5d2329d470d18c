# SPDX-License-Identifier: Apache-2.0
"""Which frame lies in which slot, when it is used next, and which may go first."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from robostream.decode.frame_index import Int64s
from robostream.decode.render import Layout

NEVER = int(np.iinfo(np.int64).max)
# Uses beyond these are asked for again once these are past.
_USES_KEPT = 9
_EMPTY = Layout("", 0, 0, 0, 0)


class NextUses(Protocol):
    """Knows the future: at which positions frames will be wanted."""

    def __call__(self, file: str, frames: Int64s, after: int) -> Int64s:
        """Return the uses of frames at positions later than `after`, one row per frame. Pure.

        Rows ascend and are filled up with `NEVER` to one length. A row without a NEVER may have
        more uses to come.
        """


class SlotTable:
    """One line per slot, in arrays that grow. For one thread at a time; reads no clock."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.layouts: list[Layout] = []
        # Uses still to come, as far as they are known; more if a row of uses may go on.
        self.left: list[int] = []
        self.frames = np.full(0, -1, np.int64)
        self.pins = np.zeros(0, np.int32)
        self._nbytes = np.zeros(0, np.int64)
        self._uses = np.full((0, _USES_KEPT), NEVER, np.int64)
        self._has_more = np.zeros(0, bool)

    def grow(self, num_slots: int) -> None:
        """Make lines for slots below `num_slots`."""
        extra = max(num_slots, 2 * len(self.files)) - len(self.files)
        if num_slots <= len(self.files):
            return
        self.files.extend([""] * extra)
        self.layouts.extend([_EMPTY] * extra)
        self.left.extend([0] * extra)
        self.frames = np.append(self.frames, np.full(extra, -1, np.int64))
        self.pins = np.append(self.pins, np.zeros(extra, np.int32))
        self._nbytes = np.append(self._nbytes, np.zeros(extra, np.int64))
        self._uses = np.append(self._uses, np.full((extra, _USES_KEPT), NEVER), axis=0)
        self._has_more = np.append(self._has_more, np.zeros(extra, bool))

    def enter(
        self, slots: list[int], file: str, frames: list[int], layout: Layout, uses: Int64s
    ) -> None:
        """Note that slots hold frames of a file, with these next uses, a row each."""
        for slot in slots:
            self.files[slot] = file
            self.layouts[slot] = layout
        at = np.array(slots, np.int64)
        self.frames[at] = frames
        self._nbytes[at] = layout.nbytes
        self.set_uses(at, uses)

    def leave(self, slot: int) -> None:
        """Note that a slot holds nothing."""
        self.files[slot] = ""
        self.layouts[slot] = _EMPTY
        self.frames[slot] = -1

    def set_uses(self, slots: Int64s, uses: Int64s) -> None:
        """Replace the next uses of slots."""
        kept = uses[:, :_USES_KEPT]
        columns = kept.shape[1]
        self._uses[slots, :columns] = kept
        self._uses[slots, columns:] = NEVER
        # A row full to its end may go on.
        has_more = kept[:, -1] != NEVER
        self._has_more[slots] = has_more
        left = np.where(has_more, NEVER, (kept != NEVER).sum(axis=1))
        for slot, count in zip(slots.tolist(), left.tolist(), strict=True):
            self.left[slot] = count

    def set_next_use(self, slot: int, use: int) -> None:
        """Replace the first of a slot's next uses, which the others must follow."""
        self._uses[slot, 0] = use

    def due(self, slots: Int64s, after: int) -> Int64s:
        """Return the first use of each slot's frame later than `after`, NEVER if none is known."""
        uses = self._uses[slots]
        first: Int64s = np.where(uses > after, uses, NEVER).min(axis=1)
        return first

    def idle(self, nbytes: int) -> Int64s:
        """Return the slots of a size that hold a frame nobody has pinned."""
        is_idle = (self.frames >= 0) & (self.pins == 0) & (self._nbytes == nbytes)
        return np.flatnonzero(is_idle)

    def refresh(self, slots: Int64s, after: int, next_uses: NextUses) -> None:
        """Ask again for the next uses of slots whose known uses may not be all."""
        by_file: dict[str, list[int]] = {}
        for slot in slots[self._has_more[slots]].tolist():
            by_file.setdefault(self.files[slot], []).append(slot)
        for file, members in by_file.items():
            at = np.array(members, np.int64)
            self.set_uses(at, next_uses(file, self.frames[at], after))
