# SPDX-License-Identifier: Apache-2.0
"""Lanes: equal pieces of the line, each a circle whose frames leave after hashed delays.

Frame x of a lane of n frames leaves at key x + delay(x), with 0 <= delay(x) < w. The lane is a
circle: frame x + n is frame x, one round later. Sorted by key (ties by hash, then by shorter delay)
the frames have consecutive numbers, their turns, counted so that

    turn of the first frame with key >= t   =   t - (frames x < t with key >= t).

The count on the right, the backlog at t, is between 0 and w - 1. So turn i is among the keys
[i, i + w), whose frames are among (i - w, i + w): every function below examines only such a run of
frames, for any i. Place p of the lane is turn entry + p. As the entry is independent of the delays,
a window of the whole lane makes a uniform shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import gcd, lcm
from typing import Final

import numpy as np

from robostream.plan.hashing import Ints, below, stream, words

# A ticket is one uint64, [key: 23 bits | hash: 19 bits | delay: 22 bits]. Sorting tickets sorts
# frames by key, hash and delay; no two tickets are equal; and a frame is its ticket's key minus its
# delay. The bit widths limit the window and the number of frames sorted at a time, and so the
# memory.
MAX_WINDOW: Final = 1 << 22
_MIN_STRETCH: Final = 1 << 16
_DELAY_BITS: Final = np.uint64(22)
_KEY_SHIFT: Final = np.uint64(41)
_DELAY_MASK: Final = np.uint64((1 << 22) - 1)
_HASH_MASK: Final = np.uint64((1 << 19) - 1)
# The streams of an epoch's lanes (1 is that of its episodes, 4 that of its quarantine).
_KEY_STREAM: Final = 2
_ENTRY_STREAM: Final = 3
# Numbers with many divisors: common world sizes divide them, and so share one order.
_LANE_COUNTS: Final = (240, 48, 24, 16, 12, 8, 6, 4, 3, 2, 1)
# A sample's window may reach into the next lane, whose frames are then decoded twice. So a lane
# should be some episodes long.
_EPISODES_PER_LANE: Final = 3
# A small selection stays decoded in memory, so short lanes cost nothing there. With 12 lanes, runs
# on 1, 2, 3, 4, 6 or 12 ranks have the same order.
_FEWEST_LANES: Final = 12


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of `length` frames, mixed within `window` frames by the hash stream `key`.

    Place 0 of the lane is turn `entry` of the circle.
    """

    key: int
    length: int
    window: int
    entry: int

    def __post_init__(self) -> None:
        window_fits = 1 <= self.window <= min(self.length, MAX_WINDOW)
        if not (window_fits and 0 <= self.entry < self.length):
            raise ValueError(
                f"want 1 <= window <= min(length, {MAX_WINDOW}) and 0 <= entry < length, "
                f"got window={self.window}, length={self.length}, entry={self.entry}"
            )


def slice_lane(lane: Lane, start: int, stop: int) -> Ints:
    """Return the frames at the places [start, stop) of the lane, in order. Pure.

    Costs O(window + stop - start), wherever start is.
    """
    return unroll_lane(lane, start, stop) % lane.length


def unroll_lane(lane: Lane, start: int, stop: int) -> Ints:
    """Return the frames of `slice_lane`, numbered on the endless line. Pure.

    Frame x of the lane's round r has the number x + r * length there. It leaves less than a window
    before or after that number.
    """
    pieces = [np.empty(0, dtype=np.int64)]
    for first, last in _stretches(lane, start + lane.entry, stop + lane.entry):
        frames = _leaving(lane, first, last + lane.window)
        backlog = np.count_nonzero(frames < first)
        pieces.append(frames[backlog : backlog + last - first])
    return np.concatenate(pieces)


def head_of_lane(lane: Lane, place: int) -> int:
    """Return the first frame of the endless line that no place before `place` reaches. Pure."""
    turn = place + lane.entry
    frames = _leaving(lane, turn, turn + lane.window)
    early = frames[: np.count_nonzero(frames < turn)]
    return max(turn, int(early.max(initial=turn - 1)) + 1)


def places_in_lane(lane: Lane, start: int, stop: int) -> Ints:
    """Return the place of each frame of [start, stop); the inverse of `slice_lane`. Pure."""
    pieces = [np.empty(0, dtype=np.int64)]
    for first, last in _stretches(lane, start, stop):
        frames = _leaving(lane, first, last + lane.window)
        turns = np.arange(first, first + frames.size) - np.count_nonzero(frames < first)
        wanted = (frames >= first) & (frames < last)
        piece = np.empty(last - first, dtype=np.int64)
        piece[frames[wanted] - first] = (turns[wanted] - lane.entry) % lane.length
        pieces.append(piece)
    return np.concatenate(pieces)


def exchanged_at(lane: Lane, turn: int) -> tuple[Ints, Ints]:
    """Return the frames that have left early, and those still missing, at turn `turn`. Pure.

    The frames of all turns before are the frames x < turn (counted on the endless line whose frame
    x is frame x mod n of the lane), plus the first array, minus the second.
    """
    frames = _leaving(lane, turn, turn + lane.window)
    missing = frames < turn
    return frames[: np.count_nonzero(missing)] % lane.length, frames[missing] % lane.length


def _stretches(lane: Lane, start: int, stop: int) -> Iterator[tuple[int, int]]:
    # Each stretch sorts a whole window besides itself, so it is at least a window long. The bits of
    # a ticket and the memory limit its length.
    length = max(lane.window, _MIN_STRETCH)
    for first in range(start, stop, length):
        yield first, min(first + length, stop)


def _leaving(lane: Lane, first_key: int, last_key: int) -> Ints:
    # The frames of the endless line with keys in [first_key, last_key), in the order they leave.
    frames = np.arange(first_key - lane.window + 1, last_key)
    hashes = words(lane.key, frames % lane.length)
    delays = below(lane.window, hashes)
    keys = frames + delays - first_key
    kept = (keys >= 0) & (keys < last_key - first_key)
    tickets = keys[kept].astype(np.uint64) << _KEY_SHIFT
    tickets |= (hashes[kept] & _HASH_MASK) << _DELAY_BITS
    tickets |= delays[kept].astype(np.uint64)
    tickets.sort()
    leaving = (tickets >> _KEY_SHIFT).astype(np.int64) + first_key
    return leaving - (tickets & _DELAY_MASK).astype(np.int64)


class Lanes:
    """The lanes of a line of `num_frames` places.

    With a shuffle each lane is entered at a random frame, or all at the same share of their length
    (`has_common_entry`), without one at its first frame. `key` has the seed and the epoch.
    """

    def __init__(
        self,
        num_frames: int,
        lanes: int,
        *,
        window: int,
        key: tuple[int, int],
        shuffle: bool,
        has_common_entry: bool,
    ) -> None:
        numbers, lengths = np.arange(lanes), lane_lengths(num_frames, lanes)
        order = lanes_by_place(lanes, shuffle=shuffle)
        starts = np.empty_like(lengths)
        starts[order] = np.cumsum(lengths[order]) - lengths[order]
        draws = words(stream(*key, _ENTRY_STREAM), numbers * (not has_common_entry))
        self._window = window
        # By number: the frames of each lane, where it starts, its hash stream, where it is entered.
        self._lengths, self._starts = lengths, starts
        self._keys = words(stream(*key, _KEY_STREAM), numbers)
        self._entries = below(lengths if shuffle else 1, draws)
        self._by_place = order

    def lane(self, number: int) -> tuple[Lane, int]:
        """Return a lane that has frames, and the place on the line where it starts. Pure."""
        length, entry = int(self._lengths[number]), int(self._entries[number])
        lane = Lane(int(self._keys[number]), length, min(self._window, length), entry)
        return lane, int(self._starts[number])

    def number_at(self, place: int) -> int:
        """Return the number of the lane that holds a place of the line. Pure."""
        starts = self._starts[self._by_place]
        return int(self._by_place[np.searchsorted(starts, place, "right") - 1])

    def spans(self) -> tuple[Ints, Ints, Ints]:
        """Return the numbers, starts and stops of all lanes with frames, in line order. Pure."""
        numbers = self._by_place[self._lengths[self._by_place] > 0]
        starts = self._starts[numbers]
        return numbers, starts, starts + self._lengths[numbers]


def lane_lengths(num_frames: int, lanes: int) -> Ints:
    """Return the number of frames of each lane: as many as positions have its number. Pure."""
    return (num_frames - np.arange(lanes) + lanes - 1) // lanes


def lanes_by_place(lanes: int, *, shuffle: bool) -> Ints:
    """Return the numbers of the lanes in the order they lie on the line. Pure.

    With a shuffle, lanes with close numbers lie far apart, so a batch smaller than the number of
    lanes still takes frames from all over the line.
    """
    numbers = np.arange(lanes)
    return np.argsort(numbers * lane_stride(lanes) % lanes) if shuffle else numbers


def lane_stride(lanes: int) -> int:
    """Return a number whose multiples, modulo the number of lanes, are evenly spread. Pure.

    They meet every lane, because the two have no common divisor, and any few in a row lie apart,
    because it is near the golden section of the number of lanes.
    """
    return next(n for n in count(max(1, 618 * lanes // 1000)) if gcd(n, lanes) == 1)


def default_lanes(num_episodes: int, world_size: int, *, shuffle: bool) -> int:
    """Return the number of lanes for a selection of `num_episodes` and `world_size` ranks. Pure.

    Without a shuffle there is one lane per rank, so each rank reads one run of frames. With a
    shuffle it is a multiple of the world size, so each rank has lanes of its own. 240 lanes keep
    the 16 workers of each of 8 ranks evenly busy. Small selections have fewer, so that a lane is
    still a few episodes long.
    """
    if not shuffle:
        return world_size
    most = max(world_size, num_episodes // _EPISODES_PER_LANE, _FEWEST_LANES)
    fitting = (lcm(base, world_size) for base in _LANE_COUNTS)
    return next(lanes for lanes in fitting if lanes <= most or lanes == world_size)
