# SPDX-License-Identifier: Apache-2.0
"""One lane: a circle of frames, each delayed by a hash of its own, entered at a random point.

Frame x of a lane of n frames leaves at key x + delay(x), with 0 <= delay(x) < w. The lane is a
circle: frame x + n is frame x, one round later. Sorted by key (ties by hash, then by shorter delay)
the frames have consecutive numbers, their turns, counted so that

    turn of the first frame with key >= t   =   t - (frames x < t with key >= t).

The count on the right, the backlog at t, is between 0 and w - 1. So turn i is among the keys
[i, i + w), whose frames are among (i - w, i + w): every function below looks at such a stretch and
no further, whatever i is. Place p of the lane is turn entry + p. As the entry is drawn apart from
the delays, a window of the whole lane makes a uniform shuffle.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from robostream.plan.mix import Ints, below, words

# A ticket is one uint64, [key: 23 bits | hash: 19 bits | delay: 22 bits]. Sorting tickets sorts
# frames by key, hash and delay; no two tickets are equal; and a frame is its ticket's key minus its
# delay. The numbers of bits limit the window and how many frames are sorted at a time, and so the
# memory.
MAX_WINDOW: Final = 1 << 22
_MIN_STRETCH: Final = 1 << 16
_DELAY_BITS: Final = np.uint64(22)
_KEY_SHIFT: Final = np.uint64(41)
_DELAY_MASK: Final = np.uint64((1 << 22) - 1)
_HASH_MASK: Final = np.uint64((1 << 19) - 1)


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
    """Return what `slice_lane` does, as frames of the endless line. Pure.

    There, frame x of the lane's round r is x + r * length, and leaves less than a window before or
    after its own number.
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
    # Each stretch costs a look at a whole window, so it is at least a window long; it is not longer
    # than the bits of a ticket and the memory allow.
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
