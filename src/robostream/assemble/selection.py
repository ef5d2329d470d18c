# SPDX-License-Identifier: Apache-2.0
"""The selected episodes, which of their frames are delivered, and how often.

Map-style reading numbers the frames of the selected episodes as items. Streaming also trims them,
takes every n-th, and weights episodes.
"""

from __future__ import annotations

import logging
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robostream import arguments
from robostream.errors import SelectionError, call_user
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import Segments

if TYPE_CHECKING:
    from robostream.plan import SelectedFrames

logger = logging.getLogger(__name__)

EpisodeFilter = Callable[[dict[str, Any]], bool]
"""Takes a row of the episode table and returns whether to read that episode."""
Ranges = Sequence[tuple[int, int]]
"""Frames of an episode to keep, as (first, stop) pairs; stop is the frame after the last."""
FrameRanges = Mapping[int, Ranges] | Callable[[dict[str, Any]], Ranges]
"""Ranges by episode, or a function that returns them for a row of the episode table."""
EpisodeWeights = Mapping[int, float] | Callable[[dict[str, Any]], float]
"""Weights by episode, or a function that returns one for a row of the episode table."""


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
    """The frames of the selected episodes by item number. Takes O(episodes) memory."""

    def __init__(self, meta: LeRobotDatasetMetadata, episodes: npt.NDArray[np.int64]) -> None:
        self.episodes = episodes  # in storage order
        self.lengths = np.asarray(meta.episodes["length"])[episodes]
        # The dataset-wide index of their first frames, and the item number at which each ends.
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


def keep_frames(
    meta: LeRobotDatasetMetadata,
    episodes: npt.NDArray[np.int64],
    frames: FrameRanges | None,
    stride: int,
    weights: EpisodeWeights | None,
) -> SelectedFrames:
    """Return the frames of some episodes to deliver, or raise SelectionError.

    An episode without ranges in `frames` keeps all frames, one without an entry in `weights` has
    weight 1. `stride` is the distance from one delivered frame of a range to the next.
    """
    from robostream.plan import SelectedFrames  # workers of plain streams do not need it

    stride = arguments.whole_number(stride, "stride", 1)
    frames, weights = check_frames(frames, "frames"), check_weights(weights, "episode_weights")
    ranges_of = _by_episode(meta, frames, "frames", check_ranges)
    weight_of = _by_episode(meta, weights, "episode_weights", _WEIGHT)
    rows: list[tuple[int, int, int, int]] = []
    each: list[float] = []
    for episode in episodes.tolist():
        length = int(meta.episodes["length"][episode])
        weight = weight_of(episode, 1.0)
        if not weight or not length:
            continue
        for first, stop in ranges_of(episode, [(0, length)]):
            if stop > length:
                raise SelectionError(
                    f"frames, episode {episode} of {meta.repo_id}, must end by frame {length}, its "
                    f"length; got {stop}"
                )
            rows.append((episode, first, -(-(stop - first) // stride), stride))
            each.append(weight)
    if not rows:
        raise SelectionError(
            f"no frame of the {len(episodes)} selected episodes of {meta.repo_id} is kept; check "
            "frames and episode_weights"
        )
    segments = Segments(*np.array(rows, dtype=np.int64).T.copy())
    return SelectedFrames(segments, None if weights is None else np.array(each))


def _by_episode(
    meta: LeRobotDatasetMetadata, given: Any, name: str, check: Callable[[object, str], Any]
) -> Callable[[int, Any], Any]:
    """Return the function of an episode and a default that gives a checked argument's value."""
    if given is not None and not isinstance(given, Mapping):

        def call(episode: int, _: Any) -> Any:
            value = call_user(name, given, dict(meta.episodes[episode]))
            return check(value, f"{name}, episode {episode} of {meta.repo_id},")

        return call
    for episode in given or {}:
        if episode >= meta.total_episodes:
            raise SelectionError(
                f"{name} has an entry of episode {episode}, but {meta.repo_id} has "
                f"{meta.total_episodes} episodes, numbered from 0"
            )
    return dict(given or {}).get


def finite_number(value: object, name: str, *, or_zero: bool) -> float:
    """Return a finite number above 0, or also 0, or raise SelectionError."""
    number = float(arguments.number(value, name, or_zero=or_zero))
    if not math.isfinite(number):
        raise SelectionError(f"{name} must be a finite number; got {value!r}")
    return number


_WEIGHT = partial(finite_number, or_zero=True)


def check_frames(frames: object, name: str) -> Any:
    """Return `frames=` with its ranges checked, or raise SelectionError."""
    wanted = "ranges by episode, {0: [(10, 50)]}, or a function that returns such a list"
    return _check_by_episode(frames, name, wanted, check_ranges)


def check_weights(weights: object, name: str) -> Any:
    """Return `episode_weights=` with its numbers checked, or raise SelectionError."""
    wanted = "weights by episode, {0: 2.0}, or a function that returns one"
    return _check_by_episode(weights, name, wanted, _WEIGHT)


def _check_by_episode(
    given: object, name: str, wanted: str, check: Callable[[object, str], Any]
) -> Any:
    arguments.of_kind(given, name, Mapping | Callable | None, wanted)
    if not isinstance(given, Mapping):
        return given
    checked = {}
    for key, value in given.items():
        episode = arguments.whole_number(key, f"an episode in {name}", 0)
        checked[episode] = check(value, f"{name}, episode {key},")
    return checked


def check_ranges(ranges: object, name: str) -> tuple[tuple[int, int], ...]:
    """Return checked (first, stop) pairs, ascending and apart, or raise SelectionError."""
    pairs: list[tuple[int, int]] = []
    for pair in arguments.of_kind(ranges, name, Sequence, "a list of (first, stop) pairs"):
        bounds = list(pair) if isinstance(pair, Sequence | np.ndarray) else []
        if not (
            len(bounds) == 2 and all(map(arguments.is_whole, bounds)) and 0 <= bounds[0] < bounds[1]
        ):
            raise SelectionError(
                f"{name} must be a list of (first, stop) pairs with 0 <= first < stop, or empty to "
                f"leave the episode out; got {ranges!r:.200}"
            )
        bounds = [int(bound) for bound in bounds]
        if pairs and bounds[0] < pairs[-1][1]:
            raise SelectionError(
                f"{name} must be ranges in ascending order that do not overlap; got {pairs[-1]} "
                f"and then {tuple(bounds)}"
            )
        pairs.append((bounds[0], bounds[1]))
    return tuple(pairs)
