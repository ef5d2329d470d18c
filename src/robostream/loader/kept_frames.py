# SPDX-License-Identifier: Apache-2.0
"""The frames of the chosen episodes that are left after dropping first and last ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream import arguments
from robostream.errors import SelectionError

logger = logging.getLogger(__name__)

Int64Array = npt.NDArray[np.int64]
_BoolArray = npt.NDArray[np.bool_]

_NAMED_EPISODES = 10


@dataclass(frozen=True, slots=True)
class KeptFrames:
    """The kept frames, numbered from 0 in dataset order, without a list of them.

    Attributes:
        ends: For each kept episode, the number after its last frame's.
        shifts: For each kept episode, what turns a frame's number into its index.
        relative: For a dataset that holds some episodes only, its row for each frame index.
    """

    ends: Int64Array
    shifts: Int64Array
    relative: Mapping[int, int] | None

    def __len__(self) -> int:
        return int(self.ends[-1])

    def indices(self, numbers: Int64Array) -> list[int]:
        """Return the dataset's indices of the kept frames with these numbers."""
        found: list[int] = (
            numbers + self.shifts[self.ends.searchsorted(numbers, "right")]
        ).tolist()
        if self.relative is None:
            return found
        return [self.relative[index] for index in found]


def keep_frames(
    starts: npt.ArrayLike,
    stops: npt.ArrayLike,
    episodes: npt.ArrayLike | None,
    *,
    drop_first: int,
    drop_last: int,
    relative: Mapping[int, int] | None,
) -> KeptFrames:
    """Return the frames of `episodes` (None: of all) that the drops leave.

    Args:
        starts: The first frame index of each episode of the dataset.
        stops: The frame index after the last of each episode.
        episodes: Which episodes to use, in any order.
        drop_first: Frames left out at the start of each episode.
        drop_last: Frames left out at the end of each episode.
        relative: The row of each frame index, where the dataset at hand is a subset.

    Raises:
        SelectionError: Episodes that do not exist, or no frame left.
    """
    first, after = _episode_bounds(starts, stops)
    used = _used_episodes(episodes, len(first))
    first = first + arguments.whole_number(drop_first, "drop_n_first_frames", 0)
    lengths = after - arguments.whole_number(drop_last, "drop_n_last_frames", 0) - first
    kept = _kept_episodes(used, lengths)
    first, lengths = first[kept], lengths[kept]
    by_index = "rows by frame index (a dict)"
    arguments.of_kind(relative, "absolute_to_relative_idx", Mapping | None, by_index)
    if relative is not None:
        _check_subset(kept, first, first + lengths - 1, relative)
    ends = np.cumsum(lengths)
    return KeptFrames(ends=ends, shifts=first - (ends - lengths), relative=relative)


def _episode_bounds(starts: npt.ArrayLike, stops: npt.ArrayLike) -> tuple[Int64Array, Int64Array]:
    """Return each episode's first frame index and the one after its last."""
    first, after = (
        np.array(arguments.whole_numbers(numbers, name), dtype=np.int64)
        for numbers, name in ((starts, "dataset_from_indices"), (stops, "dataset_to_indices"))
    )
    if first.shape != after.shape:
        raise SelectionError(
            "want one dataset_from_index and one dataset_to_index per episode, got "
            f"{len(first)} and {len(after)}"
        )
    for episode in np.flatnonzero(after < first)[:1]:
        raise SelectionError(
            f"episode {episode} ends at frame {after[episode]}, before its start "
            f"{first[episode]}: dataset_from_indices and dataset_to_indices do not belong together"
        )
    return first, after


def _used_episodes(episodes: npt.ArrayLike | None, num_episodes: int) -> _BoolArray:
    """Return which episodes were asked for; all of them must exist."""
    if episodes is None:
        return np.ones(num_episodes, dtype=np.bool_)
    wanted = arguments.whole_numbers(episodes, "episode_indices_to_use")
    unknown = [episode for episode in wanted if not 0 <= episode < num_episodes]
    if unknown:
        raise SelectionError(
            f"episode_indices_to_use names {_listed(unknown)}, but the dataset has {num_episodes} "
            "episodes, numbered from 0"
        )
    used = np.zeros(num_episodes, dtype=np.bool_)
    used[wanted] = True
    return used


def _kept_episodes(used: _BoolArray, lengths: Int64Array) -> Int64Array:
    """Return the episodes that were asked for and keep a frame."""
    emptied = np.flatnonzero(used & (lengths <= 0))
    if emptied.size:
        logger.warning(
            "%s of the %d chosen: skipped, as drop_n_first_frames and drop_n_last_frames leave no "
            "frame",
            _listed(emptied.tolist()).capitalize(),
            np.count_nonzero(used),
        )
    kept = np.flatnonzero(used & (lengths > 0))
    if not kept.size:
        raise SelectionError(
            f"No valid frames remain: {np.count_nonzero(used)} episodes were chosen of "
            f"{len(used)}, and the dropped first and last frames emptied {emptied.size} of them. "
            "Choose other episodes or drop fewer frames."
        )
    return kept


def _check_subset(
    kept: Int64Array, first: Int64Array, last: Int64Array, relative: Mapping[int, int]
) -> None:
    """Refuse episodes whose first or last kept frame the dataset at hand does not hold."""
    absent = [
        episode
        for episode, a, b in zip(kept.tolist(), first.tolist(), last.tolist(), strict=True)
        if a not in relative or b not in relative
    ]
    if absent:
        raise SelectionError(
            f"absolute_to_relative_idx has no row for frames of {_listed(absent)}: the "
            "dataset was opened with other episodes. Pass episode_indices_to_use=dataset.episodes."
        )


def _listed(episodes: Sequence[int]) -> str:
    """Return episode numbers for a message, the first few of many."""
    named = ", ".join(str(episode) for episode in episodes[:_NAMED_EPISODES])
    more = len(episodes) - _NAMED_EPISODES
    noun = "episodes" if len(episodes) > 1 else "episode"
    return f"{noun} {named}" + (f" and {more} more" if more > 0 else "")
