# SPDX-License-Identifier: Apache-2.0
"""Rows of the episodes at hand, within a byte budget.

Pictures stored in Parquet may weigh more than the budget allows to hold. Their row groups would be
read over and over, a whole one for each picture. So once something had to go for others, pictures
are mapped from a file on disk (`shared_rows.py`), which the system keeps in memory as it can.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.storage import Door, Recent

# By columns and episode.
HeldRows: TypeAlias = Recent[tuple[tuple[str, ...], int], EpisodeRows]

# Episodes per shelf; each may keep a file open.
_MAPPED_EPISODES = 64


def hold_rows(budget_bytes: int) -> HeldRows:
    """Return what holds the rows of one process; one episode always, however large."""
    return Recent(budget_bytes, weigh=lambda rows: rows.nbytes)


class RowShelf:
    """Reads some columns of an episode when they are first needed. For one thread.

    Args:
        dataset: The dataset.
        door: What opens its files.
        keys: The columns to read.
        held: What holds the rows, for all shelves of a process.
        checks_times: Whether a frame's time must be frame_index / fps, by which the pictures of
            videos and the frames of windows are found.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        door: Door,
        keys: Sequence[str],
        held: HeldRows,
        *,
        checks_times: bool,
    ) -> None:
        tolerance_s = dataset.spec.tolerance_s if checks_times else None
        self._reader = RowReader(dataset, door, keys, tolerance_s=tolerance_s)
        self._keys = tuple(keys)
        self._held = held
        self._mapped: Recent[int, EpisodeRows] = Recent(_MAPPED_EPISODES)

    def get(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode."""
        held = self._held
        return held.get((self._keys, episode)) or self._mapped.get(episode) or self._read(episode)

    def _read(self, episode: int) -> EpisodeRows:
        rows = self._reader.read(episode, maps_pictures=self._held.has_evicted)
        if rows.mapped is not None:
            return self._mapped.put(episode, rows)
        return self._held.put((self._keys, episode), rows)

    def close(self) -> None:
        """Let go of all rows and files."""
        self._held.clear()
        self._mapped.clear()
        self._reader.close()
