# SPDX-License-Identifier: Apache-2.0
"""What epochs of several datasets, of trimmed or of weighted episodes consist of.

Each dataset has an endless line: its ranges of frames, shuffled once, repeated lap after lap. An
epoch takes the next `count` frames of it, wherever in an episode that begins and ends. So every
frame is delivered floor or ceil of the dataset's laps per epoch, over all epochs equally often
within one, and any epoch is found without computing those before it.

Each dataset then gets its share of the lanes, so that every batch has about that share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from robostream.errors import SelectionError
from robostream.plan.hashing import Ints, below, hash_order, stream, words
from robostream.plan.lanes import lane_lengths, lane_stride, lanes_by_place
from robostream.plan.line import Line, Segments, lay_segments

# Weights are whole multiples of this, so that laps are counted exactly on every machine.
_UNIT_BITS: Final = 32
_LAP_STREAM: Final = 5
_ORDER_STREAM: Final = 6
_DEAL_STREAM: Final = 7
# A block of a lane has at least so many segments, since its ends cut episodes in two.
_SEGMENTS_PER_BLOCK: Final = 8
_MOST_BLOCKS: Final = 16
# A repeated range of a lap gets the word of another index.
_REPEATED: Final = 1 << 40
_MOST_WEIGHT: Final = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class SelectedFrames:
    """The selected frames of a dataset: ranges of its episodes."""

    segments: Segments  # the ranges, ascending by episode and frame
    # How often each is delivered, relative to the others; None for equally often.
    weights: npt.NDArray[np.float64] | None = None

    @property
    def num_frames(self) -> int:
        """The number of selected frames."""
        return int(self.segments.counts.sum())

    def digest(self, first_episode: int = 0) -> str:
        """Return a digest of the ranges and weights, whatever number episode 0 has."""
        state = hashlib.blake2b(digest_size=8)
        episodes, *rest = self.segments.columns()
        for column in (episodes - first_episode, *rest, self.units()):
            state.update(column.astype("<i8").tobytes())
        return state.hexdigest()

    def units(self) -> Ints:
        """Return how often each range occurs in a lap on average, in units of 2^-32."""
        counts = self.segments.counts
        if self.weights is None:
            return np.full(counts.size, 1 << _UNIT_BITS, dtype=np.int64)
        share = counts @ self.weights / counts.sum()
        if not (np.isfinite(share) and (self.weights > 0).all() and share > 0):
            raise SelectionError("want weights above 0 for the ranges that are selected")
        scaled = np.rint(self.weights / share * (1 << _UNIT_BITS))
        units: Ints = np.clip(scaled, 1, _MOST_WEIGHT << _UNIT_BITS).astype(np.int64)
        return units


@dataclass(frozen=True, slots=True, eq=False)
class MixtureSource:
    """One dataset's part in every epoch of a mixture."""

    # Its selected frames. Episode numbers are those of the mixture.
    frames: SelectedFrames
    count: int  # the frames that an epoch takes of it
    # Names its shuffle; stays with the dataset when others are added. 0 in a stream of one dataset,
    # whose state has its fingerprint.
    label: int = 0
    origin: int = 0  # the place of its endless line at which the mixture's first epoch begins


@dataclass(frozen=True, eq=False)  # without slots, which cached properties do not work with
class Mixture:
    """The content of epochs: each dataset's frames, and how many of them an epoch takes."""

    sources: tuple[MixtureSource, ...]
    first_episodes: Ints  # the number of each dataset's first episode in the mixture, ascending
    since: int = 0  # the epoch at which these counts begin

    has_common_entry = True

    @cached_property
    def num_frames(self) -> int:
        """The frames of an epoch."""
        return sum(source.count for source in self.sources)

    @cached_property
    def ids(self) -> Ints:
        """The episodes of all datasets that have frames, ascending, each once."""
        return np.unique(np.concatenate([s.frames.segments.episodes for s in self.sources]))

    @property
    def num_episodes(self) -> int:
        """The number of different episodes."""
        return int(self.ids.size)

    @cached_property
    def num_segments(self) -> int:
        """About how many segments an epoch has."""
        shares = (
            Fraction(s.count * s.frames.segments.counts.size, s.frames.num_frames)
            for s in self.sources
        )
        return max(1, round(sum(shares)))

    @cached_property
    def datasets(self) -> list[list[Any]]:
        """The label, digest of selected frames, count and origin of each dataset, for states."""
        firsts = self.first_episodes.tolist()
        return [
            [f"{s.label:016x}", s.frames.digest(first), s.count, s.origin]
            for s, first in zip(self.sources, firsts, strict=True)
        ]

    @cached_property
    def selection(self) -> str:
        """A digest of the selected frames of all datasets and their counts."""
        parts = [f"{int(label, 16)}:{count}:{digest}" for label, digest, count, _ in self.datasets]
        return hashlib.blake2b("/".join(parts).encode(), digest_size=8).hexdigest()

    def datasets_of(self, episodes: Ints) -> Ints:
        """Return the dataset of each episode. Pure."""
        return np.searchsorted(self.first_episodes, episodes, side="right") - 1

    def name_episode(self, episode: int) -> list[int]:
        """Return the dataset of an episode, and its number there. Pure."""
        dataset = int(self.datasets_of(np.array(episode)))
        return [dataset, episode - int(self.first_episodes[dataset])]

    def places(self, epoch: int) -> list[int]:
        """Return the place of each dataset's endless line at which an epoch begins. Pure."""
        passed = epoch - self.since
        return [source.origin + passed * source.count for source in self.sources]

    def begin_again(self, epoch: int, places: Sequence[int]) -> Mixture:
        """Return the mixture whose epoch `epoch` begins at these places. Pure."""
        moved = zip(self.sources, places, strict=True)
        sources = tuple(replace(source, origin=place) for source, place in moved)
        return replace(self, sources=sources, since=epoch)

    def lay(self, *, seed: int, epoch: int, lanes: int, shuffle: bool) -> Line:
        """Return the line of an epoch. Pure."""
        if epoch < self.since:
            raise SelectionError(
                f"epoch {epoch} lies before epoch {self.since}, with which the weights of this "
                "mixture begin"
            )
        return _lay(self, seed, epoch, lanes, shuffle)


@lru_cache(maxsize=4)
def _lay(mixture: Mixture, seed: int, epoch: int, lanes: int, shuffle: bool) -> Line:
    if not shuffle:
        return lay_segments(Segments.join([s.frames.segments for s in mixture.sources]))
    lines = []
    for source, place in zip(mixture.sources, mixture.places(epoch), strict=True):
        found = endless_slice(source, place, place + source.count, seed=seed)
        key = stream(seed, epoch, source.label, _ORDER_STREAM)
        lines.append(found.take(hash_order(np.arange(found.counts.size), key)))
    return lay_segments(_deal(lines, lanes, stream(seed, epoch, _DEAL_STREAM)))


def endless_slice(source: MixtureSource, start: int, stop: int, *, seed: int) -> Segments:
    """Return the places [start, stop) of a dataset's endless line, cut where need be. Pure."""
    key = stream(seed, source.label, _LAP_STREAM)
    lap = _lap_at(source, start)
    begin = _frames_before(source, lap)
    laps, end = [], begin
    while end < stop:
        laps.append(_lap(source, lap, key))
        end += int(laps[-1].counts.sum())
        lap += 1
    return Segments.join(laps).cut(start - begin, stop - begin)


def _lap(source: MixtureSource, lap: int, key: int) -> Segments:
    """Return the ranges of a lap in their shuffled order."""
    segments = source.frames.segments
    times = _times_before(source, lap + 1) - _times_before(source, lap)
    which = np.repeat(np.arange(times.size), times)
    repeated = np.arange(which.size) - np.repeat(np.cumsum(times) - times, times)
    return segments.take(which).take(hash_order(which + repeated * _REPEATED, key))


def _times_before(source: MixtureSource, lap: int) -> Ints:
    """Return how often each range has occurred before a lap."""
    units = source.frames.units()
    phases = below(1 << _UNIT_BITS, words(stream(source.label, _LAP_STREAM), np.arange(units.size)))
    # Whole and fractional part apart: their product with a late lap may not fit in 64 bits.
    whole, part = units >> _UNIT_BITS, units & ((1 << _UNIT_BITS) - 1)
    times: Ints = lap * whole + ((lap * part + phases) >> _UNIT_BITS)
    return times


def _frames_before(source: MixtureSource, lap: int) -> int:
    return int(_times_before(source, lap) @ source.frames.segments.counts)


def _lap_at(source: MixtureSource, place: int) -> int:
    """Return the lap that a place of the endless line lies in."""
    lap = place // source.frames.num_frames
    while _frames_before(source, lap) > place:
        lap -= 1
    while _frames_before(source, lap + 1) <= place:
        lap += 1
    return lap


def _deal(lines: Sequence[Segments], lanes: int, key: int) -> Segments:
    """Return the segments of all datasets in the order in which they lie on the line. Pure.

    Every lane is cut into the same number of blocks. In each block the datasets lie end to end over
    the lanes, so each round of the lanes has each dataset's share within one lane, and so has each
    rank's part of the round. In the next block the datasets begin at another lane.
    """
    left = [int(line.counts.sum()) for line in lines]
    per_lane = sum(line.counts.size for line in lines) // lanes
    most = _MOST_BLOCKS if len(lines) > 1 else 1
    blocks = min(max(1, per_lane // _SEGMENTS_PER_BLOCK), most)
    height = sum(left) // (lanes * blocks)
    by_place = lanes_by_place(lanes, shuffle=True)
    pieces, owners = [], []
    for block in range(blocks):
        size = lanes * height if block < blocks - 1 else sum(left)
        counts = share_frames(left, left, total=size)
        ends = [int(line.counts.sum()) - rest for line, rest in zip(lines, left, strict=True)]
        parts = [line.cut(e, e + n) for line, e, n in zip(lines, ends, counts, strict=True)]
        order = np.roll(by_place, -(key + block * lane_stride(lanes)) % lanes)
        found, lane = Segments.join(parts).cut_at(np.cumsum(lane_lengths(size, lanes)[order]))
        pieces.append(found)
        owners.append(order[lane])
        left = [rest - count for rest, count in zip(left, counts, strict=True)]
    places = np.argsort(by_place)  # where each lane lies on the line
    by_lane = np.argsort(places[np.concatenate(owners)], kind="stable")
    return Segments.join(pieces).take(by_lane)


def label_dataset(fingerprint: str, number: int = 0) -> int:
    """Return the label of a dataset in mixtures; `number` counts sources of equal content. Pure."""
    digest = hashlib.blake2b(f"{fingerprint}/{number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def share_frames(
    frames: Sequence[int], weights: Sequence[float | int], *, total: int | None = None
) -> list[int]:
    """Return how many frames an epoch takes of each dataset, by relative weights. Pure.

    `frames` are the selected frames of each. A `total` of None has an epoch deliver every frame of
    every dataset at least once.
    """
    exact = [Fraction(weight) for weight in weights]
    whole = sum(exact)
    if total is None:
        total = max(
            -(-count * whole // weight) for count, weight in zip(frames, exact, strict=True)
        )
    wanted = [total * weight / whole for weight in exact]
    counts = [int(share) for share in wanted]
    by_rest = sorted(range(len(counts)), key=lambda d: (counts[d] - wanted[d], d))
    for dataset in by_rest[: total - sum(counts)]:
        counts[dataset] += 1
    return counts
