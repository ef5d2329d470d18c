# SPDX-License-Identifier: Apache-2.0
"""A lane as a conveyor: which pictures of it are decoded ahead of delivery.

The frames that leave a lane next lie in a stretch of about a window that slides along the line, one
frame on for each that leaves. So decoding runs along the line, a few frames ahead of the furthest
one delivered, and decoded pictures wait for their delivery. Pictures that had come on before the
iterator began are decoded when they fall due.

Where the window is most of the lane there is no stretch that slides: everything is decoded when it
falls due.

A lane that is not shuffled is one run of frames. There, workers own blocks of it in turn instead of
whole lanes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import gcd, isqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.plan import Ints, head_of_lane, places_in_lane
from robostream.stream.agenda import Tour, first_place
from robostream.stream.prefetch import Coming
from robostream.stream.reel import Reel, is_long

# A lane is a conveyor if it is at least so many windows long; otherwise most of it is lead-in.
_WINDOWS_PER_LANE = 3
# Decoding runs ahead in steps of this many frames: enough to feed a decoder in one go, few enough
# that workers that wait for each other wait little.
STEP_FRAMES = 4

# While decoding catches up, it gains one frame on the head for so many that leave.
_CATCH_UP = 2
# Frames of a block that one worker owns where nothing is shuffled.
BLOCK_FRAMES = 32

OpenReel = Callable[[int, int, Ints, Ints], Reel]


def margin_frames(window: int) -> int:
    """Return how many frames decoding keeps before the head of a lane. Pure.

    The head strays from an even pace by a few square roots of the window.
    """
    return min(2 * isqrt(window) + 2 * STEP_FRAMES, window)


class Share(NamedTuple):
    """What of a lane's samples is ours: their rows, some videos, some pictures in Parquet."""

    rows: bool
    videos: list[int]
    stored: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The part of an episode that lies in a lane (and in one block of it).

    Frame f of the episode is frame `begin + f` of the lane, in [`start`, `stop`). There is a reel
    for each video that is ours.
    """

    episode: int
    begin: int
    start: int
    stop: int
    reels: list[Reel]


class LaneWork:
    """One lane of one iterator, in a process that owns some of it.

    Args:
        tour: What is delivered.
        number: The number of the lane in the plan.
        share_of: Returns what is ours; of the lane, or of one of its blocks where nothing is
            shuffled.
        windows: The least and the greatest offset of each camera's window, in frames.
        open_reel: Returns the reel of (camera, episode, sample frames, steps).
        stagger: By how many frames decoding begins earlier, so that the lanes of a process do not
            all take their steps at once.
    """

    def __init__(
        self,
        tour: Tour,
        number: int,
        share_of: Callable[[int], Share],
        windows: list[tuple[int, int]],
        open_reel: OpenReel,
        *,
        stagger: int,
    ) -> None:
        self._tour = tour
        self._number = number
        self._lane, self._begin = tour.plan.lane(number)
        self._share_of = share_of
        self._windows = windows
        self._open_reel = open_reel
        self._is_conveyor = self._lane.length >= _WINDOWS_PER_LANE * self._lane.window
        self._block = self._lane.length if tour.plan.shuffle else BLOCK_FRAMES
        self._end = self._lane.entry + self._lane.length + self._lane.window
        self._pieces: dict[tuple[int, int], Piece] = {}
        self._entry = head_of_lane(self._lane, first_place(tour, number))
        self._ahead = self._entry
        if tour.plan.shuffle:
            self._ahead -= self._lane.window + stagger % STEP_FRAMES
        self._samples = 0
        # The rank delivers one in so many frames of the lane.
        self._stride = tour.cut.world_size // gcd(tour.cut.world_size, tour.plan.lanes)
        self._margin = margin_frames(self._lane.window)
        self._long_gops: bool | None = None
        self._is_new = True

    def share(self, frame: int) -> Share:
        """Return what of the sample at a frame of the endless line is ours."""
        return self._share_of(frame % self._lane.length // self._block)

    def locate(self, frame: int) -> tuple[int, int]:
        """Return the (episode, frame in it) of a frame of the endless line."""
        line = self._tour.plan.line
        place = self._begin + frame % self._lane.length
        slot = bisect_right(line.starts, place) - 1
        return int(line.episodes[slot]), place - int(line.starts[slot])

    def piece_at(self, frame: int) -> Piece:
        """Return the piece a frame of the endless line lies in, opened if need be."""
        place = frame % self._lane.length
        slot = bisect_right(self._tour.plan.line.starts, self._begin + place) - 1
        key = (slot, place // self._block)
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._open(*key)
        return piece

    def run_ahead(self, head: int) -> list[tuple[Reel, int, int]]:
        """Return (reel, first, stop) of the pictures to decode, when a sample has got to `head`."""
        if not self._is_conveyor:
            return []
        self._samples += 1
        goal = self._goal(head)
        if goal < self._ahead + STEP_FRAMES and not self._ahead < head <= goal:
            return []
        goal = min(goal, self._end)
        found: list[tuple[Reel, int, int]] = []
        while self._ahead < goal:
            piece = self.piece_at(self._ahead)
            place = self._ahead % self._lane.length
            stop = min(goal - self._ahead + place, piece.stop)
            self._ahead += stop - place
            is_first = place == piece.start or self._is_new
            self._is_new = False
            for reel in piece.reels:
                back, forth = self._windows[reel.camera]
                # All but the first sample's pictures were decoded for the samples before.
                first = place + (back if is_first else forth) - piece.begin - reel.first
                last = stop - 1 + forth - piece.begin - reel.first
                found.append((reel, max(first, 0), min(last, len(reel) - 1) + 1))
        return found

    @property
    def is_catching_up(self) -> bool:
        """Whether decoding is among pictures some of which leave at the end of the epoch only."""
        return self._ahead < self._entry + self._lane.window

    @property
    def window_steps(self) -> int:
        """In how many steps a window of the lane leaves, about."""
        return -(-self._lane.window * self._tour.plan.lanes // self._tour.cut.step_size)

    def _goal(self, head: int) -> int:
        """Return up to where decoding should have come.

        It goes along the line by one frame for each that leaves, so that all workers have equally
        much to do for every batch. The head does not: it jumps, because frames leave at random. So
        decoding keeps a margin before it, and goes to the head where that was not enough.

        At the start nothing is decoded, and all that falls due has to be. If decoding were before
        the head at once, that would be twice the work. So it begins a window behind, and catches
        up. In long GOPs it begins at the head: there, one picture by itself costs as much as all
        before it.
        """
        if not self._tour.plan.shuffle:
            return head + STEP_FRAMES - 1 if head > self._ahead else head
        is_long = self._has_long_gops()
        # Quarantined samples pass without being counted.
        passed = max(self._samples * self._stride, head - self._entry - self._margin)
        behind = self._margin + (0 if is_long else self._lane.window)
        lag = max(0, behind - passed // _CATCH_UP)
        goal = self._entry + passed + self._margin - lag
        return max(goal, head) if is_long or lag == 0 else goal

    def _has_long_gops(self) -> bool:
        """Return whether the videos at the entry have long GOPs; then skip what lies behind it."""
        if self._long_gops is None:
            piece = self.piece_at(self._entry)
            self._long_gops = any(is_long(reel) for reel in piece.reels)
            if self._long_gops:
                self._ahead = self._entry
        return self._long_gops

    def retire(self, piece: Piece) -> None:
        """Forget the reels of a piece all of whose pictures are delivered."""
        # The piece itself stays, so that it is not opened again.
        piece.reels.clear()

    def reels(self) -> list[Reel]:
        """Return all reels that are open."""
        return [reel for piece in self._pieces.values() for reel in piece.reels]

    def _open(self, slot: int, block: int) -> Piece:
        line = self._tour.plan.line
        episode, origin = int(line.episodes[slot]), int(line.starts[slot]) - self._begin
        first, stop, ours, steps = self._part(slot, block)
        videos = self._share_of(block).videos
        reels = []
        if len(steps) and videos and episode not in self._tour.plan.quarantined:
            samples = np.arange(first - origin, stop - origin)[ours]
            reels = [self._open_reel(camera, episode, samples, steps) for camera in videos]
            for reel in reels:
                reel.is_behind = self._is_behind(stop)
        return Piece(episode, origin, first, stop, reels)

    def coming(self) -> Iterator[Coming]:
        """Yield what is ours along the lane, from what lies behind the entry on, once around.

        Changes nothing, so that it goes on while pieces are opened and retired.
        """
        line, length = self._tour.plan.line, self._lane.length
        begin = self._entry - (self._lane.window if self._tour.plan.shuffle else 0)
        frame = begin
        while frame < begin + length:
            place = frame % length
            slot = bisect_right(line.starts, self._begin + place) - 1
            block = place // self._block
            first, stop, _, steps = self._part(slot, block)
            share, episode = self._share_of(block), int(line.episodes[slot])
            if len(steps) and any(share) and episode not in self._tour.plan.quarantined:
                origin = int(line.starts[slot]) - self._begin
                rows, at = share.rows or bool(share.stored), frame - self._entry
                ours = (episode, first - origin, stop - origin, rows, share.videos)
                yield Coming(int(steps.min()), at, *ours)
            frame += stop - place

    def _part(self, slot: int, block: int) -> tuple[int, int, npt.NDArray[np.bool_], Ints]:
        """Return the frames [first, stop) of a piece, which of them are ours, and their steps."""
        lane, line = self._lane, self._tour.plan.line
        first = max(0, int(line.starts[slot]) - self._begin, block * self._block)
        stop = min(lane.length, int(line.starts[slot + 1]) - self._begin, (block + 1) * self._block)
        positions = places_in_lane(lane, first, stop) * self._tour.plan.lanes + self._number
        ours = self._is_delivered(positions)
        return first, stop, ours, (positions[ours] - self._tour.start) // self._tour.cut.step_size

    def _is_behind(self, stop: int) -> bool:
        """Return whether a piece that ends before `stop` lies in the window behind the entry."""
        behind = (self._entry - stop) % self._lane.length
        return self._is_conveyor and behind < self._lane.window

    def _is_delivered(self, positions: Ints) -> npt.NDArray[np.bool_]:
        tour = self._tour
        inside = (positions >= tour.start) & (positions < tour.stop)
        ours: npt.NDArray[np.bool_] = inside & (positions % tour.cut.world_size == tour.cut.rank)
        return ours
