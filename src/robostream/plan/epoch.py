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

from collections.abc import Iterable
from functools import cached_property
from math import gcd
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from robostream.errors import SelectionError
from robostream.plan.hashing import Ints, Words, stream, words
from robostream.plan.lanes import (
    MAX_WINDOW,
    Lane,
    Lanes,
    exchanged_at,
    places_in_lane,
    slice_lane,
)
from robostream.plan.line import Line, Quarantine, WholeEpisodes

if TYPE_CHECKING:
    from robostream.plan.mixture import Mixture

_QUARANTINE_STREAM: Final = 4  # 1 is that of the line, 2 and 3 those of the lanes
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


class LineDigests:
    """Prefix sums that give the digest of any run of places on a line.

    Making them takes O(segments + longest episode).
    """

    def __init__(self, line: Line) -> None:
        runs = line.segments
        stops = runs.firsts + runs.counts * runs.strides
        own = np.empty(stops.size, dtype=np.uint64)
        # By stride: the sum of the words of frames n - stride, n - 2 * stride ..., by n.
        self._frames: dict[int, Words] = {}
        for stride in np.unique(runs.strides).tolist():
            here = runs.strides == stride
            sums = self._frames[stride] = _frame_sums(int(stops[here].max()) + 1, stride)
            own[here] = sums[stops[here]] - sums[runs.firsts[here]]
        self._line = line
        # The digest of the first n segments of the line, by n.
        self._segments = np.zeros(stops.size + 1, dtype=np.uint64)
        np.cumsum(words(_EPISODE_WORDS, runs.episodes) * own, out=self._segments[1:])

    def between(self, start: int, stop: int) -> int:
        """Return the digest of the frames at the places [start, stop), modulo 2^64. Pure."""
        return self._before(stop) - self._before(start)

    def _before(self, place: int) -> int:
        line, runs = self._line, self._line.segments
        segment = int(np.searchsorted(line.starts, place, side="right")) - 1
        before = int(self._segments[segment])
        if place == line.num_frames:
            return before
        first, stride = int(runs.firsts[segment]), int(runs.strides[segment])
        stop = first + (place - int(line.starts[segment])) * stride
        frames = int(self._frames[stride][stop]) - int(self._frames[stride][first])
        return before + int(words(_EPISODE_WORDS, runs.episodes[segment : segment + 1])[0]) * frames


def _content(
    lengths: npt.ArrayLike | WholeEpisodes | Mixture, episodes: npt.ArrayLike | None
) -> WholeEpisodes | Mixture:
    if isinstance(lengths, WholeEpisodes):
        return lengths
    from robostream.plan.mixture import Mixture  # workers of plain streams do not need it

    if isinstance(lengths, Mixture):
        return lengths
    counts = np.array(lengths, dtype=np.int64)
    ids = np.arange(counts.size) if episodes is None else np.array(episodes, np.int64)
    return WholeEpisodes(counts, ids)


def _frame_sums(size: int, stride: int) -> Words:
    """Return the sum of the words of frames n - stride, n - 2 * stride ... for each n < size."""
    rows = -(-size // stride) + 1
    sums = np.zeros((rows, stride), dtype=np.uint64)
    own = words(_FRAME_WORDS, np.arange((rows - 1) * stride)).reshape(rows - 1, stride)
    np.cumsum(own, axis=0, out=sums[1:])
    return sums.reshape(-1)[:size]


class EpochPlan:
    """The order of one epoch, computed on demand as a pure function of its arguments.

    A plan is immutable, thread-safe and takes O(episodes) memory. All positions are global: ranks,
    workers and batches only divide the order (`robostream.plan.Cut`).

    Args:
        lengths: The number of frames of each episode, all of which an epoch delivers once; or what
            else it consists of.
        episodes: The ids of the episodes, ascending; 0, 1, 2 ... if None.
        seed: Any integer.
        epoch: The number of the epoch, from 0.
        lanes: The number of equal lanes.
        pool_size: About how many episodes are mixed at a time, over all lanes.
        shuffle: False keeps episodes and frames in dataset order in each lane.
        quarantined: Episodes that frames of other episodes replace.

    Attributes:
        content: What epochs consist of.
        line: The episodes of this epoch, end to end, before lanes and mixing.
    """

    # The last position and its receipt: states are often saved one after the other.
    _last_receipt = 0, 0

    def __init__(
        self,
        lengths: npt.ArrayLike | WholeEpisodes | Mixture,
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
        content = self.content = _content(lengths, episodes)
        self.seed: int = int(seed)
        self.epoch: int = int(epoch)
        self.lanes: int = int(lanes)
        self.pool_size: int = int(pool_size)
        self.shuffle: bool = bool(shuffle)
        self.quarantined: tuple[int, ...] = tuple(sorted({int(episode) for episode in quarantined}))
        self.line: Line = content.lay(
            seed=self.seed, epoch=epoch, lanes=lanes, shuffle=self.shuffle
        )
        if self.quarantined and np.isin(self.line.ids, self.quarantined).all():
            raise SelectionError(
                f"all {self.line.ids.size} episodes of this selection are quarantined, so no frame "
                "is left to replace theirs. The log gives the reason for each."
            )
        self._lanes = Lanes(
            self.num_frames,
            lanes,
            window=self.window,
            key=(seed, epoch),
            shuffle=shuffle,
            has_common_entry=content.has_common_entry,
        )

    def replace(
        self,
        *,
        epoch: int | None = None,
        lanes: int | None = None,
        quarantined: Iterable[int] | None = None,
        content: WholeEpisodes | Mixture | None = None,
    ) -> EpochPlan:
        """Return the plan of another epoch, or with other lanes, quarantine or content. Pure."""
        content = self.content if content is None else content
        epoch = self.epoch if epoch is None else epoch
        lanes = self.lanes if lanes is None else lanes
        quarantined = self.quarantined if quarantined is None else tuple(quarantined)
        if (epoch, lanes, quarantined, content) == self._settings:
            return self
        return EpochPlan(
            content,
            seed=self.seed,
            epoch=epoch,
            lanes=lanes,
            pool_size=self.pool_size,
            shuffle=self.shuffle,
            quarantined=quarantined,
        )

    def is_same_order(self, other: EpochPlan) -> bool:
        """Return whether another plan of this stream has the same settings. Pure."""
        return other._settings == self._settings

    @property
    def _settings(self) -> tuple[object, ...]:
        return self.epoch, self.lanes, self.quarantined, self.content

    @property
    def num_frames(self) -> int:
        """The number of frames, and of positions, of the epoch."""
        return self.line.num_frames

    @property
    def num_episodes(self) -> int:
        """The number of different episodes that have frames."""
        return self.content.num_episodes

    @property
    def window(self) -> int:
        """The number of frames a lane is mixed over: its share of the pool, at most its length."""
        return self.window_of(self.pool_size) if self.shuffle else 1

    def window_of(self, pool_size: int) -> int:
        """Return the window that another pool size would give. Pure."""
        frames = -(-pool_size * self.num_frames // (self.lanes * self.content.num_segments))
        return min(frames, -(-self.num_frames // self.lanes), MAX_WINDOW)

    def lane_spans(self) -> tuple[Ints, Ints, Ints]:
        """Return the numbers, starts and stops of all lanes with frames, in line order. Pure."""
        return self._lanes.spans()

    def lane(self, number: int) -> tuple[Lane, int]:
        """Return a lane that has frames, and the place on the line where it starts. Pure."""
        return self._lanes.lane(number)

    @property
    def selection(self) -> str:
        """A digest of what epochs consist of."""
        return self.content.selection

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
        places = np.empty(len(positions), dtype=np.int64)
        # The positions of one lane are `period` apart; each hop advances `stride` places in it.
        common = gcd(step, self.lanes)
        period, stride = self.lanes // common, step // common
        for offset, position in enumerate(positions[:period]):
            first, number = divmod(position, self.lanes)
            own = places[offset::period]
            lane, begin = self._lanes.lane(number)
            frames = slice_lane(lane, first, first + (own.size - 1) * stride + 1)
            own[:] = begin + frames[::stride]
        if self._quarantine is not None:
            places = self._quarantine.fill(np.array(positions, dtype=np.int64), places)
        return self.line.locate(places)

    def positions(self, episode: int) -> Ints:
        """Return the position of every frame of an episode's segments; inverse of `slice`. Pure.

        Costs O(window + length of the segments). Raises SelectionError if the epoch has none.
        """
        spans = self.line.spans(episode)
        if not spans:
            raise SelectionError(
                f"episode {episode} is not one of the {self.line.ids.size} episodes with frames "
                "that this plan orders"
            )
        return np.concatenate([self._positions(*span) for span in spans])

    def uses(self, episode: int, first: int, stop: int) -> Ints:
        """Return the positions that deliver the frames [first, stop) of an episode. Pure."""
        line, runs = self.line, self.line.segments
        found = [np.empty(0, dtype=np.int64)]
        for n in line.segments_of(episode):
            begin, stride, count = (int(c[n]) for c in (runs.firsts, runs.strides, runs.counts))
            places = range(begin, begin + count * stride, stride)
            low, high = (min(max(-(-(f - begin) // stride), 0), len(places)) for f in (first, stop))
            if low < high:
                start = int(line.starts[n])
                found.append(self._positions(start + low, start + high))
        return np.concatenate(found)

    def _positions(self, first: int, stop: int) -> Ints:
        """Return the positions of the line's places [first, stop)."""
        parts = []
        while first < stop:
            number = self._lanes.number_at(first)
            lane, begin = self._lanes.lane(number)
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
        return LineDigests(self.line)

    @cached_property
    def _quarantine(self) -> Quarantine | None:
        if not self.quarantined:
            return None
        unknown = np.setdiff1d(self.quarantined, self.content.ids)
        if unknown.size:
            raise SelectionError(
                f"episode {unknown[0]} cannot be quarantined: it is not one of the "
                f"{self.num_episodes} episodes that this plan orders"
            )
        if not np.isin(self.line.ids, self.quarantined).any():
            return None
        # Frames this close on the line leave at about the same time, so the episodes of the
        # replacements are being read anyway.
        mean_length = -(-self.num_frames // self.content.num_segments)
        return Quarantine(
            self.line,
            self.quarantined,
            self.content.datasets_of(self.line.segments.episodes),
            reach=max(self.window, mean_length),
            key=stream(self.seed, self.epoch, _QUARANTINE_STREAM),
        )

    def _lane_digest(self, number: int, stop: int) -> int:
        # The frames at the lane's places [0, stop) are those between the turns `entry` and
        # `entry + stop`, corrected at both ends for frames that left early or are still missing.
        lane, start = self._lanes.lane(number)
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
