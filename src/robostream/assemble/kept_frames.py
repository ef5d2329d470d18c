# SPDX-License-Identifier: Apache-2.0
"""Which frames of the selected episodes are delivered, and how often: trims, strides, weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments
from robostream.errors import SelectionError, call_user
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import Segments, SelectedFrames

Ranges = Sequence[tuple[int, int]]
"""Frames of an episode to keep, as (first, stop) pairs; stop is the frame after the last."""
FrameRanges = Mapping[int, Ranges] | Callable[[dict[str, Any]], Ranges]
"""Ranges by episode, or a function that returns them for a row of the episode table."""
EpisodeWeights = Mapping[int, float] | Callable[[dict[str, Any]], float]
"""Weights by episode, or a function that returns one for a row of the episode table."""


def keep_frames(
    meta: LeRobotDatasetMetadata,
    episodes: npt.NDArray[np.int64],
    frames: FrameRanges | None,
    stride: int,
    weights: EpisodeWeights | None,
) -> SelectedFrames:
    """Return the frames of some episodes to deliver, or raise SelectionError.

    Args:
        meta: The metadata.
        episodes: The selected episodes.
        frames: The ranges to keep; an episode without an entry keeps all frames.
        stride: The distance from one delivered frame of a range to the next.
        weights: How often to deliver each episode; one without an entry has weight 1.
    """
    stride = arguments.whole_number(stride, "stride", 1)
    frames, weights = check_frames(frames, "frames"), check_weights(weights, "episode_weights")
    _check_known(meta, frames, "frames")
    _check_known(meta, weights, "episode_weights")
    rows: list[tuple[int, int, int, int]] = []
    each: list[float] = []
    for episode in episodes.tolist():
        weight = 1.0 if weights is None else _weight_of(meta, episode, weights)
        length = int(meta.episodes["length"][episode])
        for first, stop in _ranges_of(meta, episode, length, frames) if weight else ():
            rows.append((episode, first, -(-(stop - first) // stride), stride))
            each.append(weight)
    if not rows:
        raise SelectionError(
            f"no frame of the {len(episodes)} selected episodes of {meta.repo_id} is kept; check "
            "frames and episode_weights"
        )
    segments = Segments(*np.array(rows, dtype=np.int64).T.copy())
    return SelectedFrames(segments, None if weights is None else np.array(each))


def _check_known(meta: LeRobotDatasetMetadata, by_episode: object, name: str) -> None:
    """Raise SelectionError for an entry of an episode that the dataset does not have."""
    for episode in by_episode if isinstance(by_episode, Mapping) else ():
        if episode >= meta.total_episodes:
            raise SelectionError(
                f"{name} has an entry of episode {episode}, but {meta.repo_id} has "
                f"{meta.total_episodes} episodes, numbered from 0"
            )


def _ranges_of(
    meta: LeRobotDatasetMetadata, episode: int, length: int, frames: FrameRanges | None
) -> Ranges:
    if frames is None or not length:
        return [(0, length)] if length else []
    name = f"frames, episode {episode} of {meta.repo_id},"
    if isinstance(frames, Mapping):
        ranges = frames.get(episode, [(0, length)])
    else:
        ranges = check_ranges(call_user("frames", frames, dict(meta.episodes[episode])), name)
    for _, stop in ranges:
        if stop > length:
            raise SelectionError(f"{name} must end by frame {length}, its length; got {stop}")
    return ranges


def _weight_of(meta: LeRobotDatasetMetadata, episode: int, weights: EpisodeWeights) -> float:
    if isinstance(weights, Mapping):
        return weights.get(episode, 1.0)
    weight = call_user("episode_weights", weights, dict(meta.episodes[episode]))
    return finite_number(
        weight, f"episode_weights, episode {episode} of {meta.repo_id},", or_zero=True
    )


def finite_number(value: object, name: str, *, or_zero: bool) -> float:
    """Return a finite number above 0, or also 0, or raise SelectionError."""
    number = float(arguments.number(value, name, or_zero=or_zero))
    if not math.isfinite(number):
        raise SelectionError(f"{name} must be a finite number; got {value!r}")
    return number


def check_frames(frames: object, name: str) -> Any:
    """Return `frames=` with its ranges checked, or raise SelectionError."""
    wanted = "ranges by episode, {0: [(10, 50)]}, or a function that returns such a list"
    arguments.of_kind(frames, name, Mapping | Callable | None, wanted)
    if not isinstance(frames, Mapping):
        return frames
    return {
        arguments.whole_number(episode, f"an episode in {name}", 0): check_ranges(
            ranges, f"{name}, episode {episode},"
        )
        for episode, ranges in frames.items()
    }


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


def check_weights(weights: object, name: str) -> Any:
    """Return `episode_weights=` with its numbers checked, or raise SelectionError."""
    wanted = "weights by episode, {0: 2.0}, or a function that returns one"
    arguments.of_kind(weights, name, Mapping | Callable | None, wanted)
    if not isinstance(weights, Mapping):
        return weights
    return {
        arguments.whole_number(episode, f"an episode in {name}", 0): finite_number(
            weight, f"{name}, episode {episode},", or_zero=True
        )
        for episode, weight in weights.items()
    }
