# SPDX-License-Identifier: Apache-2.0
"""The selected episodes, and the item number of each of their frames."""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments
from robostream.errors import SelectionError
from robostream.meta import LeRobotDatasetMetadata

logger = logging.getLogger(__name__)

EpisodeFilter = Callable[[dict[str, Any]], bool]
"""Takes a row of the episode table and returns whether to read that episode."""


def select_episodes(
    meta: LeRobotDatasetMetadata,
    episodes: Sequence[int] | None,
    episode_filter: EpisodeFilter | None,
) -> npt.NDArray[np.int64]:
    """Return the selected episodes in storage order, each once.

    As in LeRobot, unknown numbers are left out with a warning. Raises SelectionError for a value
    that is not a whole number, and if no episode is left.
    """
    arguments.of_kind(episode_filter, "episode_filter", Callable | None, "callable or None")
    total = len(meta.episodes)
    wanted: list[int] = []
    if episodes is None:
        chosen = np.arange(total, dtype=np.int64)
    else:
        wanted = sorted(set(arguments.whole_numbers(episodes, "episodes")))
        chosen = np.array([n for n in wanted if 0 <= n < total], dtype=np.int64)
        unknown = [n for n in wanted if not 0 <= n < total]
        if unknown:
            logger.warning(
                "%s has no episodes %s (it has %d, numbered from 0); they are left out",
                *(meta.repo_id, shorten(unknown), total),
            )
    if episode_filter is not None:
        chosen = np.intersect1d(chosen, np.asarray(meta.filter_episodes(episode_filter)))
    if len(chosen) == 0:
        raise SelectionError(
            f"no episode of {meta.repo_id} is selected (it has {total}, numbered from 0); "
            f"got episodes={'None' if episodes is None else shorten(wanted)} and "
            f"{'an' if episode_filter else 'no'} episode_filter"
        )
    return chosen


class FrameSelection:
    """The frames of the selected episodes by item number. Takes O(episodes) memory.

    Attributes:
        episodes: The episodes, in storage order.
        lengths: Their frames.
        starts: The dataset-wide index of their first frames.
        ends: The item number at which each of them ends.
    """

    def __init__(self, meta: LeRobotDatasetMetadata, episodes: npt.NDArray[np.int64]) -> None:
        self.episodes = episodes
        self.lengths = np.asarray(meta.episodes["length"])[episodes]
        self.starts = np.asarray(meta.episodes["dataset_from_index"])[episodes]
        self.ends = np.cumsum(self.lengths)

    @property
    def num_frames(self) -> int:
        """The number of selected frames."""
        return int(self.ends[-1]) if len(self.ends) else 0

    def locate(self, item: int) -> tuple[int, int]:
        """Return the (episode, frame) of an item; negative numbers count from the end."""
        count, item = self.num_frames, _item_number(item)
        if not -count <= item < count:
            raise IndexError(f"item {item} is out of range; the selection has {count} frames")
        item %= count
        place = int(np.searchsorted(self.ends, item, side="right"))
        start = int(self.ends[place] - self.lengths[place])
        return int(self.episodes[place]), item - start


class AbsoluteToRelative(Mapping[int, int]):
    """Maps a frame's dataset-wide index to its item number, computed on demand."""

    def __init__(self, selection: FrameSelection) -> None:
        self._selection = selection

    def __getitem__(self, absolute: int) -> int:
        first, lengths = self._selection.starts, self._selection.lengths
        place = int(np.searchsorted(first, absolute, side="right")) - 1
        if place < 0 or absolute >= first[place] + lengths[place]:
            raise KeyError(absolute)
        return int(absolute - first[place] + self._selection.ends[place] - lengths[place])

    def __iter__(self) -> Iterator[int]:
        for first, length in zip(self._selection.starts, self._selection.lengths, strict=True):
            yield from range(int(first), int(first + length))

    def __len__(self) -> int:
        return self._selection.num_frames


def _item_number(item: object) -> int:
    """Return an item number given as an integer of Python, numpy or torch."""
    try:
        if not isinstance(item, bool):
            return operator.index(item)  # type: ignore[arg-type]
    except TypeError:
        pass
    raise SelectionError(
        f"the number of an item must be a whole number, as in dataset[3]; got {item!r:.200}. A "
        "slice, dataset[3:5], gives several items."
    )


def shorten(numbers: Sequence[int]) -> str:
    """Return a list as text, at most its first ten numbers."""
    if len(numbers) <= 10:
        return str(list(numbers))
    return f"[{', '.join(str(n) for n in numbers[:10])}, ... {len(numbers)} in all]"
