# SPDX-License-Identifier: Apache-2.0
"""The line: an epoch's episodes in some order, laid end to end."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robostream.errors import SelectionError
from robostream.plan.mix import Ints
from robostream.plan.permute import hash_order


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of `num_frames` places, each one frame of one episode; the frames are not stored.

    Attributes:
        episodes: Episode ids in line order, without empty episodes.
        starts: The first place of each episode in line order, then the number of places.
        ids: The same episode ids, ascending.
        starts_by_id: The first place of each episode of `ids`.
    """

    episodes: Ints
    starts: Ints
    ids: Ints
    starts_by_id: Ints

    @property
    def num_frames(self) -> int:
        """The number of places of the line."""
        return int(self.starts[-1])

    def locate(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the episode id and the frame in it of each place. Pure."""
        slots = np.searchsorted(self.starts, places, side="right") - 1
        return self.episodes[slots], places - self.starts[slots]

    def span(self, episode: int) -> tuple[int, int]:
        """Return the places [start, stop) of one episode. Pure."""
        start = int(self.places(np.array([episode]), np.array([0]))[0])
        slot = int(np.searchsorted(self.starts, start))
        return start, int(self.starts[slot + 1])

    def places(self, episodes: Ints, frames: Ints) -> Ints:
        """Return the place of each (episode id, frame); the inverse of `locate`. Pure."""
        slots = np.minimum(np.searchsorted(self.ids, episodes), self.ids.size - 1)
        unknown = self.ids[slots] != episodes
        if np.any(unknown):
            raise SelectionError(
                f"episode {int(np.asarray(episodes)[unknown][0])} is not one of the "
                f"{self.ids.size} episodes with frames that this plan orders"
            )
        return self.starts_by_id[slots] + frames


def lay_line(lengths: Ints, ids: Ints, *, key: int | None) -> Line:
    """Return the line of the episodes `ids`, shuffled if there is a `key`. Pure.

    Args:
        lengths: The number of frames of each episode.
        ids: The episode ids, strictly ascending.
        key: The stream that shuffles the episodes; None keeps them in ascending order.
    """
    ids, lengths = _checked(ids, lengths)
    order = np.arange(ids.size) if key is None else hash_order(ids, key)
    starts = np.zeros(ids.size + 1, dtype=np.int64)
    np.cumsum(lengths[order], out=starts[1:])
    starts_by_id = np.empty_like(ids)
    starts_by_id[order] = starts[:-1]
    return Line(episodes=ids[order], starts=starts, ids=ids, starts_by_id=starts_by_id)


def _checked(ids: Ints, lengths: Ints) -> tuple[Ints, Ints]:
    if ids.shape != lengths.shape or ids.ndim != 1:
        raise ValueError(
            f"want one length per episode, got {ids.shape} ids and {lengths.shape} lengths"
        )
    if ids.size and (lengths.min() < 0 or ids[0] < 0 or np.any(ids[1:] <= ids[:-1])):
        raise ValueError("want episode ids ascending without repeats, from 0, and lengths >= 0")
    filled = lengths > 0
    if not filled.any():
        raise SelectionError(f"none of the {ids.size} selected episodes has a frame to order")
    return ids[filled], lengths[filled]
