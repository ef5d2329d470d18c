# SPDX-License-Identifier: Apache-2.0
"""The order of one epoch: any slice of it, the positions of any episode, any receipt.

The episodes are shuffled by (seed, epoch) and laid end to end; the line is cut into equal lanes;
each lane is a circle, mixed within a window. Position g is place g // lanes of lane g % lanes.

A receipt is the digest of the frames before a position. The digest of a pair (episode, frame) is
the product of a word of the episode and a word of the frame, modulo 2^64; the digest of a set is
the sum. So the digests of all ranks add up to the digest of the global batch, and those of the
batches to the receipt. The digest of a whole segment needs no look at each frame, so a receipt
costs the same at every position. Different sets of frames have different receipts, but for a chance
of about 2^-64. A receipt does not show the order inside a set, and it detects accidents, not
forgery.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from math import gcd
from typing import Final

import numpy as np
import numpy.typing as npt

from robostream.errors import SelectionError
from robostream.plan.hashing import Ints, Words, stream, words
from robostream.plan.lanes import (
    MAX_WINDOW,
    Lane,
    cut_lanes,
    exchanged_at,
    places_in_lane,
    slice_lane,
)
from robostream.plan.line import Line, Quarantine, lay_line, lay_quarantine

_EPISODE_STREAM: Final = 1
_QUARANTINE_STREAM: Final = 4  # 2 and 3 are those of the lanes
_EPISODE_WORDS: Final = stream(0x45504953)
_FRAME_WORDS: Final = stream(0x4652414D)
# Up to so many frames per lane, adding frames to the last receipt costs less than a new one.
_SOON: Final = 64


def pair_digests(episodes: Ints, frames: Ints) -> Words:
    """Return the digest of each (episode, frame) pair. Pure."""
    return words(_EPISODE_WORDS, episodes) * words(_FRAME_WORDS, frames)


def digest(episodes: Ints, frames: Ints) -> int:
    """Return the digest of a set of (episode, frame) pairs. Pure."""
    return int(pair_digests(episodes, frames).sum(dtype=np.uint64))


def format_receipt(value: int) -> str:
    """Return a digest as 16 hexadecimal digits, as in states and logs. Pure."""
    return f"{value % (1 << 64):016x}"


@dataclass(frozen=True, slots=True, eq=False)
class LineDigests:
    """Prefix sums that give the digest of any run of places on a line.

    Attributes:
        line: The line.
        segments: The digest of the first n segments of the line, for each n.
        frames: The sum of the words of the first n frames of any episode, for each n.
    """

    line: Line
    segments: Words
    frames: Words

    def between(self, start: int, stop: int) -> int:
        """Return the digest of the frames at the places [start, stop), modulo 2^64. Pure."""
        return self._before(stop) - self._before(start)

    def _before(self, place: int) -> int:
        line = self.line
        segment = int(np.searchsorted(line.starts, place, side="right")) - 1
        before = int(self.segments[segment])
        if place == line.num_frames:
            return before
        first = int(line.firsts[segment])
        stop = first + place - int(line.starts[segment])
        frames = int(self.frames[stop]) - int(self.frames[first])
        return before + int(words(_EPISODE_WORDS, line.episodes[segment : segment + 1])[0]) * frames


def digest_line(line: Line) -> LineDigests:
    """Return the digests of a line, in O(segments + longest episode). Pure."""
    stops = line.firsts + np.diff(line.starts)
    frames = np.zeros(int(stops.max()) + 1, dtype=np.uint64)
    np.cumsum(words(_FRAME_WORDS, np.arange(frames.size - 1)), out=frames[1:])
    segments = np.zeros(stops.size + 1, dtype=np.uint64)
    own = frames[stops] - frames[line.firsts]
    np.cumsum(words(_EPISODE_WORDS, line.episodes) * own, out=segments[1:])
    return LineDigests(line=line, segments=segments, frames=frames)


class EpochPlan:
    """The order of one epoch, computed on demand as a pure function of its arguments.

    A plan is immutable, thread-safe and takes O(episodes) memory. All positions are global: ranks,
    workers and batches only divide the order (`robostream.plan.Cut`).

    Args:
        lengths: The number of frames of each episode.
        episodes: Their ids, ascending; 0, 1, 2 ... if None.
        seed: Any integer.
        epoch: The number of the epoch, from 0.
        lanes: The number of equal lanes.
        pool_size: About how many episodes are mixed at a time, over all lanes.
        shuffle: False keeps episodes and frames in dataset order in each lane.
        quarantined: Episodes that frames of other episodes replace.
    """

    # The last position and its receipt: states are often saved one after the other.
    _last_receipt = 0, 0

    def __init__(
        self,
        lengths: npt.ArrayLike,
        *,
        episodes: npt.ArrayLike | None = None,
        seed: int,
        epoch: int,
        lanes: int,
        pool_size: int,
        shuffle: bool = True,
        quarantined: Iterable[int] = (),
    ) -> None:
        if epoch < 0 or lanes < 1 or pool_size < 1:
            raise ValueError(
                "want epoch >= 0, lanes >= 1 and pool_size >= 1, "
                f"got epoch={epoch}, lanes={lanes}, pool_size={pool_size}"
            )
        self._lengths = np.array(lengths, dtype=np.int64)
        if episodes is None:
            episodes = np.arange(self._lengths.size)
        self._ids = np.array(episodes, dtype=np.int64)
        self.seed, self.epoch, self.lanes = int(seed), int(epoch), int(lanes)
        self.pool_size, self.shuffle = int(pool_size), bool(shuffle)
        self.quarantined = tuple(sorted({int(episode) for episode in quarantined}))
        key = stream(seed, epoch, _EPISODE_STREAM) if shuffle else None
        self.line = lay_line(self._lengths, self._ids, key=key)
        if self.quarantined and np.isin(self.line.ids, self.quarantined).all():
            raise SelectionError(
                f"all {self.num_episodes} episodes of this selection are quarantined, so no frame "
                "is left to replace theirs. The log gives the reason for each."
            )
        self._lanes = cut_lanes(
            self.num_frames, lanes, window=self.window, seed=seed, epoch=epoch, shuffle=shuffle
        )

    def replace(
        self,
        *,
        epoch: int | None = None,
        lanes: int | None = None,
        quarantined: Iterable[int] | None = None,
    ) -> EpochPlan:
        """Return the plan of another epoch, or with other lanes or another quarantine. Pure."""
        epoch = self.epoch if epoch is None else epoch
        lanes = self.lanes if lanes is None else lanes
        quarantined = self.quarantined if quarantined is None else tuple(quarantined)
        if (epoch, lanes, quarantined) == (self.epoch, self.lanes, self.quarantined):
            return self
        return EpochPlan(
            self._lengths,
            episodes=self._ids,
            seed=self.seed,
            epoch=epoch,
            lanes=lanes,
            pool_size=self.pool_size,
            shuffle=self.shuffle,
            quarantined=quarantined,
        )

    @property
    def num_frames(self) -> int:
        """The number of frames, and of positions, of the epoch."""
        return self.line.num_frames

    @property
    def num_episodes(self) -> int:
        """The number of episodes that have frames."""
        return int(self.line.ids.size)

    @property
    def window(self) -> int:
        """The number of frames a lane is mixed over: its share of the pool, at most its length."""
        return self.window_of(self.pool_size) if self.shuffle else 1

    def window_of(self, pool_size: int) -> int:
        """Return the window that another pool size would give. Pure."""
        frames = -(-pool_size * self.num_frames // (self.lanes * self.num_episodes))
        return min(frames, -(-self.num_frames // self.lanes), MAX_WINDOW)

    def lane_spans(self) -> tuple[Ints, Ints, Ints]:
        """Return the numbers, starts and stops of all lanes with frames, in line order. Pure."""
        numbers = self._lanes.by_place[self._lanes.lengths[self._lanes.by_place] > 0]
        starts = self._lanes.starts[numbers]
        return numbers, starts, starts + self._lanes.lengths[numbers]

    def lane(self, number: int) -> tuple[Lane, int]:
        """Return a lane that has frames, and the place on the line where it starts. Pure."""
        return self._lanes.lane(number), int(self._lanes.starts[number])

    @cached_property
    def selection(self) -> str:
        """A digest of the selected episodes and their lengths."""
        state = hashlib.blake2b(digest_size=8)
        state.update(self.line.ids.astype("<i8").tobytes())
        state.update(self._lengths[self._lengths > 0].astype("<i8").tobytes())
        return state.hexdigest()

    def slice(self, start: int, stop: int, step: int = 1) -> tuple[Ints, Ints]:
        """Return the episode ids and frames at positions start, start + step, ... below stop. Pure.

        Costs O(window) for each lane touched, and O(stop - start), wherever start is. With a step
        that divides the number of lanes, only every step-th lane is touched.
        """
        if not (0 <= start <= stop <= self.num_frames and step >= 1):
            raise ValueError(
                f"want 0 <= start <= stop <= {self.num_frames} and step >= 1, "
                f"got start={start}, stop={stop}, step={step}"
            )
        positions = range(start, stop, step)
        places = self._line_places(positions)
        if self._quarantine is not None:
            places = self._quarantine.fill(np.array(positions, dtype=np.int64), places)
        return self.line.locate(places)

    def positions(self, episode: int) -> Ints:
        """Return the position of every frame of an episode's segments; inverse of `slice`. Pure.

        Costs O(window + length of the episode).
        """
        return np.concatenate([self._positions(*span) for span in self.line.spans(episode)])

    def _positions(self, first: int, stop: int) -> Ints:
        """Return the positions of the line's places [first, stop)."""
        parts = []
        while first < stop:
            number = int(self._lanes.numbers_at(np.array([first]))[0])
            lane, begin = self._lanes.lane(number), int(self._lanes.starts[number])
            last = min(stop, begin + lane.length)
            places = places_in_lane(lane, first - begin, last - begin)
            parts.append(places * self.lanes + number)
            first = last
        return np.concatenate(parts)

    def receipt(self, position: int) -> int:
        """Return the digest of the frames at the positions [0, position). Pure.

        Costs O(window) for each lane, and O(episodes) the first time, at any position. Soon after
        the last position asked for, it costs only the lanes in between.
        """
        if not 0 <= position <= self.num_frames:
            raise ValueError(f"want a position in [0, {self.num_frames}], got {position}")
        known, total = self._last_receipt
        if 0 <= position - known <= _SOON * self.lanes:
            total += digest(*self.slice(known, position))
        else:
            total = self._quarantine_correction(position)
            for lane in range(min(self.lanes, position)):
                total += self._lane_digest(lane, -(-(position - lane) // self.lanes))
        total %= 1 << 64
        self._last_receipt = position, total
        return total

    @cached_property
    def _digests(self) -> LineDigests:
        return digest_line(self.line)

    @cached_property
    def _quarantine(self) -> Quarantine | None:
        if not self.quarantined:
            return None
        # Frames this close on the line leave at about the same time, so the episodes of the
        # replacements are being read anyway.
        mean_length = -(-self.num_frames // self.num_episodes)
        return lay_quarantine(
            self.line,
            self.quarantined,
            reach=max(self.window, mean_length),
            key=stream(self.seed, self.epoch, _QUARANTINE_STREAM),
        )

    def _line_places(self, positions: range) -> Ints:
        # The positions of one lane are `period` apart; each hop advances `stride` places in it.
        common = gcd(positions.step, self.lanes)
        period, stride = self.lanes // common, positions.step // common
        places = np.empty(len(positions), dtype=np.int64)
        for offset, first in enumerate(positions[:period]):
            start, number = divmod(first, self.lanes)
            own = places[offset::period]
            stop = start + (own.size - 1) * stride + 1
            frames = slice_lane(self._lanes.lane(number), start, stop)
            own[:] = self._lanes.starts[number] + frames[::stride]
        return places

    def _lane_digest(self, number: int, stop: int) -> int:
        # The frames at the lane's places [0, stop) are those between the turns `entry` and
        # `entry + stop`, corrected at both ends for frames that left early or are still missing.
        lane, start = self._lanes.lane(number), int(self._lanes.starts[number])
        total = 0
        for sign, turn in ((1, lane.entry + stop), (-1, lane.entry)):
            early, missing = exchanged_at(lane, turn)
            rounds, passed = divmod(turn, lane.length)
            total += sign * self._digests.between(start, start + passed)
            total += sign * rounds * self._digests.between(start, start + lane.length)
            total += sign * self._digest_places(start + early)
            total -= sign * self._digest_places(start + missing)
        return total

    def _digest_places(self, places: Ints) -> int:
        return digest(*self.line.locate(places))

    def _quarantine_correction(self, position: int) -> int:
        if self._quarantine is None:
            return 0
        total = 0
        for span in (span for episode in self.quarantined for span in self.line.spans(episode)):
            positions = self._positions(*span)
            places = np.arange(*span)[positions < position]
            filled = self._quarantine.fill(positions[positions < position], places)
            total += self._digest_places(filled) - self._digest_places(places)
        return total
