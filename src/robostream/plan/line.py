# SPDX-License-Identifier: Apache-2.0
"""The line: an epoch's segments laid end to end, and the replacements of quarantined episodes.

A segment is a run of frames of one episode: (episode, first frame, stop). In a plain epoch each
segment is one whole episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robostream.errors import SelectionError
from robostream.plan.hashing import Ints, below, hash_order, words


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of `num_frames` places, each one frame of one segment; the frames are not stored.

    Attributes:
        episodes: The episode of each segment, in line order.
        firsts: The first frame of each segment in its episode.
        starts: The first place of each segment, then the number of places.
        by_episode: The segment numbers in the order of their episodes.
        ids: The episodes of the line, ascending, each once.
    """

    episodes: Ints
    firsts: Ints
    starts: Ints
    by_episode: Ints
    ids: Ints

    @property
    def num_frames(self) -> int:
        """The number of places of the line."""
        return int(self.starts[-1])

    def locate(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the episode and the frame in it of each place. Pure."""
        segments = np.searchsorted(self.starts, places, side="right") - 1
        return self.episodes[segments], places - self.starts[segments] + self.firsts[segments]

    def spans(self, episode: int) -> list[tuple[int, int]]:
        """Return the places [start, stop) of each segment of an episode, in line order. Pure."""
        first, stop = (
            int(np.searchsorted(self.episodes, episode, side, sorter=self.by_episode))
            for side in ("left", "right")
        )
        if first == stop:
            raise SelectionError(
                f"episode {episode} is not one of the {self.ids.size} episodes with frames that "
                "this plan orders"
            )
        segments = np.sort(self.by_episode[first:stop]).tolist()
        return [(int(self.starts[n]), int(self.starts[n + 1])) for n in segments]


def lay_line(lengths: Ints, ids: Ints, *, key: int | None) -> Line:
    """Return the line of whole episodes, shuffled if there is a `key`. Pure.

    Args:
        lengths: The number of frames of each episode.
        ids: The episode ids, strictly ascending.
        key: The stream that shuffles the episodes; None keeps them in ascending order.
    """
    ids, lengths = _checked(ids, lengths)
    order = np.arange(ids.size) if key is None else hash_order(ids, key)
    return lay_segments(ids[order], np.zeros_like(ids), lengths[order])


def lay_segments(episodes: Ints, firsts: Ints, stops: Ints) -> Line:
    """Return the line of segments that each have frames, in the order given. Pure."""
    starts = np.zeros(episodes.size + 1, dtype=np.int64)
    np.cumsum(stops - firsts, out=starts[1:])
    by_episode = np.argsort(episodes, kind="stable")
    return Line(episodes, firsts, starts, by_episode, np.unique(episodes))


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


@dataclass(frozen=True, slots=True, eq=False)
class Quarantine:
    """The places of quarantined episodes on a line, and the rule that fills them.

    Healthy frames from nearby on the line replace those of quarantined episodes. The line keeps its
    length and every healthy frame keeps its position, so ranks stay in step. The replacement at a
    position is a function of the plan, the quarantined episodes and the position.

    Attributes:
        starts: The first place of each quarantined segment, ascending.
        stops: The place after its last frame.
        healthy_before: The number of healthy places before each quarantined segment.
        num_healthy: The number of healthy places of the line.
        reach: The replacements of a segment come from this many healthy places around it.
        key: The stream that draws the replacements, by position.
    """

    starts: Ints
    stops: Ints
    healthy_before: Ints
    num_healthy: int
    reach: int
    key: int

    def fill(self, positions: Ints, places: Ints) -> Ints:
        """Return `places` with the quarantined ones replaced. Pure."""
        segments = np.searchsorted(self.starts, places, side="right") - 1
        bad = (segments >= 0) & (places < self.stops[segments])
        healthy = self.healthy_before[segments[bad]] - self.reach // 2
        healthy += below(self.reach, words(self.key, positions[bad]))
        filled = places.copy()
        filled[bad] = self._healthy_places(healthy % self.num_healthy)
        return filled

    def _healthy_places(self, healthy: Ints) -> Ints:
        passed = np.searchsorted(self.healthy_before, healthy, side="right")
        removed: Ints = np.concatenate([[0], np.cumsum(self.stops - self.starts)])
        places: Ints = healthy + removed[passed]
        return places


def lay_quarantine(line: Line, episodes: Sequence[int], *, reach: int, key: int) -> Quarantine:
    """Return the rule that fills the places of some, but not all, episodes of a line. Pure."""
    spans = sorted(span for episode in set(episodes) for span in line.spans(episode))
    starts, stops = np.array(spans, dtype=np.int64).T
    lengths = stops - starts
    num_healthy = line.num_frames - int(lengths.sum())
    return Quarantine(
        starts=starts,
        stops=stops,
        healthy_before=starts - np.cumsum(lengths) + lengths,
        num_healthy=num_healthy,
        reach=min(reach, num_healthy),
        key=key,
    )
