# SPDX-License-Identifier: Apache-2.0
"""Where a consumer stands in a run, and where its next iterator begins."""

from __future__ import annotations

from robostream.plan import Cursor


class Position:
    """The bookmark moves on with every delivery; beginning an iterator does not move it.

    `load_state_dict` and `set_epoch` stage a cursor: they say where the next iterator begins.

    Attributes:
        cursor: The next position to deliver, and its epoch.
        staged: The staged cursor; None once an iterator that began there has delivered.
        last_staged: The cursor that was staged last, used or not.
        taken: For a state that counts a plain DataLoader's batches: their number and size.
        is_used: Whether an iterator, also one of a loader, has gone on from `last_staged`.
        version: How often a cursor was staged.
    """

    def __init__(self) -> None:
        self.cursor = Cursor(0, 0)
        self.staged: Cursor | None = None
        self.last_staged: Cursor | None = None
        self.taken: tuple[int, int] | None = None
        self.is_used = False
        self.version = 0

    def next_start(self) -> Cursor:
        """Return where an iterator that is made now begins.

        That is the staged cursor, if there is one. Otherwise it is the start of an epoch: of the
        one the consumer is about to begin, or of the next one if the consumer left an epoch early.
        """
        if self.staged is not None:
            return self.staged
        return self.cursor if self.cursor.position == 0 else Cursor(self.cursor.epoch + 1, 0)

    def stage(self, cursor: Cursor, taken: tuple[int, int] | None = None) -> None:
        """Make the next iterator begin at a cursor."""
        self.cursor = cursor
        self.taken = taken
        # A new object, so that `deliver` can tell it from an equal cursor staged before.
        self.staged = self.last_staged = Cursor(cursor.epoch, cursor.position)
        self.is_used = False
        self.version += 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin an epoch.

        If a state in the middle of that very epoch was loaded, it stays, so that a loop over epochs
        that calls this method goes on where the state stands.
        """
        if self.staged is None or self.staged.epoch != epoch or self.is_used:
            self.stage(Cursor(epoch, 0))

    def deliver(self, cursor: Cursor, began_from: Cursor | None) -> None:
        """Note that an iterator has delivered everything before a cursor.

        Args:
            cursor: The next position to deliver, and its epoch.
            began_from: What was staged when the iterator began. A cursor that was staged since then
                stays staged.
        """
        self.cursor = cursor
        if self.staged is began_from:
            self.staged = None
            self.is_used = True
