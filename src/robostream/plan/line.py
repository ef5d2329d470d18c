# SPDX-License-Identifier: Apache-2.0
"""The line: an epoch's segments laid end to end, and the replacements of quarantined episodes.

A segment is a run of frames of one episode. In a plain epoch each segment is one whole episode;
`mixture.py` has the segments of several datasets, and of trimmed, weighted or strided episodes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from robostream.errors import SelectionError
from robostream.plan.hashing import Ints, below, hash_order, stream, words

_EPISODE_STREAM: Final = 1


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """Runs of frames of episodes; arrays have one entry for each."""

    episodes: Ints
    firsts: Ints  # its first frame in the episode
    counts: Ints
    strides: Ints  # the distance from one frame to the next

    @staticmethod
    def join(parts: Sequence[Segments]) -> Segments:
        """Return the segments of all parts, in order. Pure."""
        columns = zip(*(part.columns() for part in parts), strict=True)
        return Segments(*map(np.concatenate, columns))

    def columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        """Return the four arrays."""
        return self.episodes, self.firsts, self.counts, self.strides

    def take(self, which: Ints | npt.NDArray[np.bool_]) -> Segments:
        """Return some of the segments, in the order given. Pure."""
        return Segments(*(column[which] for column in self.columns()))

    def part(self, begins: Ints, ends: Ints) -> Segments:
        """Return the frames number [begin, end) of each segment, without those left empty. Pure."""
        firsts = self.firsts + begins * self.strides
        parts = Segments(self.episodes, firsts, ends - begins, self.strides)
        return parts.take(ends > begins)

    def cut(self, start: int, stop: int) -> Segments:
        """Return the frames number [start, stop) of all segments laid end to end. Pure."""
        ends = np.cumsum(self.counts)
        near = slice(np.searchsorted(ends, start, "right"), np.searchsorted(ends, stop, "left") + 1)
        parts = Segments(*(column[near] for column in self.columns()))
        starts = ends[near] - parts.counts
        return parts.part(np.maximum(start - starts, 0), np.minimum(stop - starts, parts.counts))

    def cut_at(self, bounds: Ints) -> tuple[Segments, Ints]:
        """Return the segments laid end to end and cut at some places, ascending. Pure.

        Also returns how many of these places lie at or before the first frame of each piece.
        """
        starts = np.cumsum(self.counts) - self.counts
        total = int(self.counts.sum())
        edges = np.union1d(starts, bounds[bounds < total])
        at = np.searchsorted(starts, edges, side="right") - 1
        pieces = self.take(at).part(edges - starts[at], np.append(edges[1:], total) - starts[at])
        return pieces, np.searchsorted(bounds, edges, side="right")


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """A line of `num_frames` places, each one frame of one segment; the frames are not stored."""

    segments: Segments  # the segments, in line order
    starts: Ints  # the first place of each segment, then the number of places
    by_episode: Ints  # the segment numbers in the order of their episodes
    ids: Ints  # the episodes of the line, ascending, each once

    @property
    def num_frames(self) -> int:
        """The number of places of the line."""
        return int(self.starts[-1])

    def locate(self, places: Ints) -> tuple[Ints, Ints]:
        """Return the episode and the frame in it of each place. Pure."""
        runs, at = self.segments, np.searchsorted(self.starts, places, side="right") - 1
        return runs.episodes[at], runs.firsts[at] + (places - self.starts[at]) * runs.strides[at]

    def segments_of(self, episode: int) -> list[int]:
        """Return the numbers of an episode's segments, in line order; none if it has none. Pure."""
        first, stop = (
            int(np.searchsorted(self.segments.episodes, episode, side, sorter=self.by_episode))
            for side in ("left", "right")
        )
        found: list[int] = np.sort(self.by_episode[first:stop]).tolist()
        return found

    def spans(self, episode: int) -> list[tuple[int, int]]:
        """Return the places [start, stop) of each segment of an episode, in line order. Pure."""
        return [(int(self.starts[n]), int(self.starts[n + 1])) for n in self.segments_of(episode)]


@dataclass(frozen=True, eq=False)  # without slots, which cached properties do not work with
class WholeEpisodes:
    """The content of plain epochs: every selected episode, whole, once."""

    lengths: Ints  # the number of frames of each episode
    ids: Ints  # the episodes, strictly ascending

    has_common_entry = False
    # Its state names no datasets.
    since = datasets = None
    first_episodes = np.zeros(1, dtype=np.int64)

    def __post_init__(self) -> None:
        ids, lengths = self.ids, self.lengths
        if ids.shape != lengths.shape or ids.ndim != 1:
            raise ValueError(
                f"want one length per episode, got {ids.shape} ids and {lengths.shape} lengths"
            )
        if ids.size and (lengths.min() < 0 or ids[0] < 0 or np.any(ids[1:] <= ids[:-1])):
            raise ValueError("want episode ids ascending without repeats, from 0, and lengths >= 0")
        if not lengths.any():
            raise SelectionError(f"none of the {ids.size} selected episodes has a frame to order")

    @property
    def num_episodes(self) -> int:
        """The number of episodes that have frames."""
        return int(np.count_nonzero(self.lengths))

    num_segments = num_episodes  # each segment is one whole episode

    @cached_property
    def selection(self) -> str:
        """A digest of the selected episodes and their lengths."""
        filled, state = self.lengths > 0, hashlib.blake2b(digest_size=8)
        state.update(self.ids[filled].astype("<i8").tobytes())
        state.update(self.lengths[filled].astype("<i8").tobytes())
        return state.hexdigest()

    def datasets_of(self, episodes: Ints) -> Ints:
        """Return the dataset of each episode: all are of one."""
        return np.zeros_like(episodes)

    def name_episode(self, episode: int) -> int:
        """Return how a state names an episode."""
        return episode

    def lay(self, *, seed: int, epoch: int, lanes: int, shuffle: bool) -> Line:
        """Return the line of an epoch: the episodes shuffled, or in ascending order. Pure."""
        del lanes
        ids, lengths = self.ids[self.lengths > 0], self.lengths[self.lengths > 0]
        key = stream(seed, epoch, _EPISODE_STREAM)
        order = hash_order(ids, key) if shuffle else np.arange(ids.size)
        nothing = np.zeros_like(ids)
        return lay_segments(Segments(ids[order], nothing, lengths[order], nothing + 1))


def lay_segments(segments: Segments) -> Line:
    """Return the line of segments that each have frames, in the order given. Pure."""
    starts = np.zeros(segments.counts.size + 1, dtype=np.int64)
    np.cumsum(segments.counts, out=starts[1:])
    by_episode = np.argsort(segments.episodes, kind="stable")
    ids = segments.episodes[by_episode]
    return Line(segments, starts, by_episode, ids[np.r_[True, ids[1:] != ids[:-1]]])


class Quarantine:
    """The rule that fills the places of quarantined episodes on a line.

    Healthy frames of the same dataset, from nearby on the line, replace those of quarantined
    episodes. The line keeps its length and every healthy frame keeps its position, so ranks stay in
    step. The replacement at a position is a function of the plan, the quarantined episodes and the
    position.

    Args:
        line: The line.
        episodes: The quarantined episodes: some of the line's, but not all.
        datasets: The dataset of each segment. If all segments of one are quarantined, those of the
            first other dataset replace them.
        reach: The replacements of a segment come from this many healthy places around it.
        key: The stream that draws the replacements, by position.
    """

    def __init__(
        self, line: Line, episodes: Sequence[int], datasets: Ints, *, reach: int, key: int
    ) -> None:
        is_bad = np.isin(line.segments.episodes, episodes)
        counts, starts = line.segments.counts, line.starts[:-1]
        by_dataset = np.argsort(datasets[~is_bad], kind="stable")
        totals = np.bincount(datasets[~is_bad], counts[~is_bad], datasets.max() + 1)
        healthy = totals.astype(np.int64)
        owners = np.where(healthy > 0, np.arange(healthy.size), np.flatnonzero(healthy)[0])
        before = np.zeros_like(counts)
        for dataset in np.unique(datasets[is_bad]):
            of_pool = np.where((datasets == owners[dataset]) & ~is_bad, counts, 0)
            here = datasets == dataset
            before[here] = (np.cumsum(of_pool) - of_pool)[here]
        pools = owners[datasets[is_bad]]
        self._reach, self._key = reach, key
        # Of each quarantined segment, in line order: its places; the number of its dataset's first
        # healthy place; how many healthy places its dataset has before it, and in all.
        self._starts, self._stops = starts[is_bad], line.starts[1:][is_bad]
        self._firsts = (np.cumsum(healthy) - healthy)[pools]
        self._before, self._healthy = before[is_bad], healthy[pools]
        # Of each healthy segment, dataset by dataset: its first place, and the number of healthy
        # places up to its end.
        self._healthy_starts = starts[~is_bad][by_dataset]
        self._healthy_ends = np.cumsum(counts[~is_bad][by_dataset])

    def fill(self, positions: Ints, places: Ints) -> Ints:
        """Return `places` with the quarantined ones replaced. Pure."""
        segments = np.searchsorted(self._starts, places, side="right") - 1
        bad = (segments >= 0) & (places < self._stops[segments])
        segments = segments[bad]
        healthy = self._healthy[segments]
        reach = np.minimum(self._reach, healthy)
        chosen = self._before[segments] - reach // 2
        chosen += below(reach, words(self._key, positions[bad]))
        chosen = self._firsts[segments] + chosen % healthy
        at = np.searchsorted(self._healthy_ends, chosen, side="right")
        filled = places.copy()
        filled[bad] = self._healthy_starts[at] + chosen - np.r_[0, self._healthy_ends][at]
        return filled
