# SPDX-License-Identifier: Apache-2.0
"""Rows of the episodes at hand, within a byte budget.

Pictures stored in Parquet may weigh more than the budget allows to hold. Their row groups would be
read over and over, a whole one for each picture. So once something had to go for others, pictures
are mapped from a file on disk (`shared_rows.py`), which the system keeps in memory as it can.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from robostream import config
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows, RowReader
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import FileOpener, LruCache

logger = logging.getLogger(__name__)

# By columns and episode.
RowLru: TypeAlias = LruCache[tuple[tuple[str, ...], int], EpisodeRows]

# Episodes per shelf; each may keep a file open.
_MAPPED_EPISODES = 64


def new_row_lru(budget_bytes: int) -> RowLru:
    """Return what holds the rows of one process; one episode always, however large."""
    return LruCache(budget_bytes, weigh=lambda rows: rows.nbytes)


class RowCache:
    """Reads some columns of an episode when they are first needed. For one thread.

    Args:
        dataset: The dataset.
        door: What opens its files.
        keys: The columns to read.
        held: What holds the rows, for all shelves of a process.
        checks_times: Whether the table's times must be those the pictures of videos are found by.
            Such a shelf also says, once, if its rows have other tasks, or another place in the
            dataset, than the episode table says.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        door: FileOpener,
        keys: Sequence[str],
        held: RowLru,
        *,
        checks_times: bool,
    ) -> None:
        spec = dataset.spec
        tolerance_s = spec.tolerance_s if checks_times and spec.videos else None
        self._reader = RowReader(dataset, door, keys, tolerance_s=tolerance_s)
        self._meta = dataset.meta
        self._compares = checks_times
        self._keys = tuple(keys)
        self._held = held
        self._mapped: LruCache[int, EpisodeRows] = LruCache(_MAPPED_EPISODES)

    def get(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode."""
        held = self._held
        return held.get((self._keys, episode)) or self._mapped.get(episode) or self._read(episode)

    def _read(self, episode: int) -> EpisodeRows:
        rows = self._reader.read(episode, maps_images=self._held.has_evicted)
        if self._compares:
            said = _say_other_tasks(self._meta, rows) or _say_other_index(self._meta, rows)
            self._compares = not said
        if rows.mapped is not None:
            return self._mapped.put(episode, rows)
        return self._held.put((self._keys, episode), rows)

    def close(self) -> None:
        """Let go of all rows and files."""
        self._held.clear()
        self._mapped.clear()
        self._reader.close()


def _say_other_tasks(meta: LeRobotDatasetMetadata, rows: EpisodeRows) -> bool:
    """Return whether an episode's rows have tasks that the episode table does not list; say so."""
    listed = meta.episodes[rows.episode].get("tasks")
    if not isinstance(listed, list) or not listed:
        return False
    numbers = np.unique(rows.numbers["task_index"]).tolist()
    texts = [meta.tasks[number] for number in numbers if 0 <= number < len(meta.tasks)]
    others = [text for text in texts if text not in listed]
    if others:
        logger.warning(
            "%s: the task of episode %d is %r in %s, but %r in meta/episodes; samples have the "
            "first. Copy meta/ again, unless the texts were edited on purpose. Other episodes are "
            "not named.",
            *(meta.root, rows.episode, others[0], config.TASKS_PATH, ", ".join(map(str, listed))),
        )
    return bool(others)


def _say_other_index(meta: LeRobotDatasetMetadata, rows: EpisodeRows) -> bool:
    """Return whether an episode's rows count from another place than the table has; say so."""
    wanted = int(meta.episodes["dataset_from_index"][rows.episode]) + np.arange(rows.length)
    index = rows.numbers["index"]
    wrong = np.flatnonzero(index != wanted)
    if wrong.size:
        at = wrong[0]
        logger.warning(
            "%s: frame %d of episode %d has the index %d, want %d as meta/episodes counts; samples "
            "have the first. Other frames are not named.",
            *(meta.root, at, rows.episode, index[at], wanted[at]),
        )
    return bool(wrong.size)
