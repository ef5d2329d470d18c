# SPDX-License-Identifier: Apache-2.0
"""Where a consumer stands in a run, and where its next iterator begins."""

from __future__ import annotations

from robostream.plan import Cursor


class Place:
    """The place moves with what is delivered; beginning an iterator does not move it.

    Attributes:
        cursor: The next position to deliver, and its epoch.
        staged: Where the next iterator is to begin, until one that began there has delivered.
        last_staged: What was staged last.
        taken: Number and size of the batches taken since then, where a plain loader's were counted.
        is_used: Whether someone, a loader too, has gone on from what was staged last.
        version: How often a place was staged.
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

        That is the staged place; else the consumer's place if it is the start of an epoch; else, as
        the epoch was left early, the start of the next one.
        """
        if self.staged is not None:
            return self.staged
        return self.cursor if self.cursor.position == 0 else Cursor(self.cursor.epoch + 1, 0)

    def stage(self, cursor: Cursor, taken: tuple[int, int] | None = None) -> None:
        """Make the next iterator begin at a place."""
        self.cursor = cursor
        self.taken = taken
        # A new object, so that an iterator can tell that this is the place it began from.
        self.staged = self.last_staged = Cursor(cursor.epoch, cursor.position)
        self.is_used = False
        self.version += 1

    def set_epoch(self, epoch: int) -> None:
        """Make the next iterator begin an epoch.

        A loaded state in the middle of that very epoch stays, so that a loop over epochs that calls
        this goes on where the state stood.
        """
        if self.staged is None or self.staged.epoch != epoch or self.is_used:
            self.stage(Cursor(epoch, 0))

    def deliver(self, cursor: Cursor, began_from: Cursor | None) -> None:
        """Note that an iterator, begun when `began_from` was staged, has delivered up to a place.

        What was staged since it began stays staged.
        """
        self.cursor = cursor
        if self.staged is began_from:
            self.staged = None
            self.is_used = True
