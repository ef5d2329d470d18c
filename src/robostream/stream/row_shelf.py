# SPDX-License-Identifier: Apache-2.0
"""Rows of the episodes at hand, within a byte budget."""

from __future__ import annotations

from collections import OrderedDict

from robostream.assemble import EpisodeRows, RowReader


class RowShelf:
    """Reads each episode's rows when they are first needed; the least recently used go first.

    For one thread. One episode is always held, however large.
    """

    def __init__(self, reader: RowReader, budget_bytes: int) -> None:
        self._reader = reader
        self._budget_bytes = budget_bytes
        self._rows: OrderedDict[int, EpisodeRows] = OrderedDict()
        self.nbytes = 0

    def get(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode."""
        rows = self._rows.get(episode)
        if rows is not None:
            self._rows.move_to_end(episode)
            return rows
        rows = self._rows[episode] = self._reader.read(episode)
        self.nbytes += rows.nbytes
        while self.nbytes > self._budget_bytes and len(self._rows) > 1:
            self.nbytes -= self._rows.popitem(last=False)[1].nbytes
        return rows

    def close(self) -> None:
        """Let go of all rows and files."""
        self._rows.clear()
        self.nbytes = 0
        self._reader.close()
