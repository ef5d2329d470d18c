# SPDX-License-Identifier: Apache-2.0
"""Rows of the episodes at hand, within a byte budget."""

from __future__ import annotations

from collections.abc import Sequence

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.storage import Recent


class RowShelf:
    """Reads each episode's rows when they are first needed. For one thread.

    Args:
        dataset: The dataset.
        keys: The columns to read.
        budget_bytes: What rows at hand may weigh; one episode is always held, however large.
        checks_times: Whether the table's times must be those the pictures of videos are found by.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        keys: Sequence[str],
        budget_bytes: int,
        *,
        checks_times: bool,
    ) -> None:
        spec = dataset.spec
        tolerance_s = spec.tolerance_s if checks_times and spec.videos else None
        self._reader = RowReader(dataset, keys, tolerance_s=tolerance_s)
        self._rows: Recent[int, EpisodeRows] = Recent(budget_bytes, weigh=lambda rows: rows.nbytes)

    def get(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode."""
        return self._rows.get(episode) or self._rows.put(episode, self._reader.read(episode))

    def close(self) -> None:
        """Let go of all rows and files."""
        self._rows.clear()
        self._reader.close()
