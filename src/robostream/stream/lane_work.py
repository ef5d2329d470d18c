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
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.plan import Ints, head_of_lane, turns_in_lane
from robostream.stream.agenda import Tour, first_place
from robostream.stream.reel import Reel, is_long

# A lane is a conveyor if it is at least so many windows long; otherwise most of it is lead-in.
_WINDOWS_PER_LANE = 3
# Decoding runs ahead in steps of this many frames: enough to feed a decoder in one go, few enough
# that workers that wait for each other wait little.
STEP_FRAMES = 8

# Over how many windows decoding catches up with the head of a lane.
_CATCH_UP_WINDOWS = 2
# Frames of a block that one worker owns where nothing is shuffled.
BLOCK_FRAMES = 32

OpenReel = Callable[[int, int, Ints, Ints], Reel]


class Share(NamedTuple):
    """What of a lane's samples is ours: their rows, some videos, some pictures in Parquet."""

    rows: bool
    videos: list[int]
    stored: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The part of an episode that lies in a lane, in one round of its circle (and one block).

    Frame f of the episode is `begin + f` on the lane's endless line, for `begin + f` in
    [`start`, `stop`). There is a reel for each video that is ours.
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
        stagger: How many frames shorter the first step is, so that the lanes of a process do not
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
        self._pieces: dict[tuple[int, int, int], Piece] = {}
        self._entry = head_of_lane(self._lane, first_place(tour, number))
        self._ahead = self._entry - self._lane.window
        self._stagger = stagger % STEP_FRAMES
        self._long_gops: bool | None = None

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
        round_number, place = divmod(frame, self._lane.length)
        slot = bisect_right(self._tour.plan.line.starts, self._begin + place) - 1
        key = (round_number if self._is_conveyor else 0, slot, place // self._block)
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._open(*key)
        return piece

    def frame_in(self, piece: Piece, frame: int) -> int:
        """Return the frame of the episode a frame of the endless line is."""
        return (frame if self._is_conveyor else frame % self._lane.length) - piece.begin

    def run_ahead(self, head: int) -> list[tuple[Reel, int]]:
        """Return (reel, picture) up to which to decode, when a lane has got to `head`.

        At the start nothing is decoded, and all that falls due has to be. If decoding ran ahead of
        the head at once, that would be twice the work. So it begins a window behind the head, and
        catches up while the lane goes on by two windows. In long GOPs it stays at the head from the
        start: there, one picture by itself costs as much as all before it.
        """
        if not self._is_conveyor:
            return []
        goal = head if self._has_long_gops() else head - self._lag(head)
        if goal <= self._ahead:
            return []
        goal = min(goal + STEP_FRAMES - 1 - self._stagger, self._end)
        self._stagger = 0
        found: list[tuple[Reel, int]] = []
        while self._ahead < goal:
            piece = self.piece_at(self._ahead)
            self._ahead = min(goal, piece.stop)
            for reel in piece.reels:
                last = self._ahead - 1 - piece.begin + self._windows[reel.camera][1] - reel.first
                found.append((reel, min(last, len(reel) - 1) + 1))
        return found

    def _lag(self, head: int) -> int:
        return max(0, self._lane.window - (head - self._entry) // _CATCH_UP_WINDOWS)

    def _has_long_gops(self) -> bool:
        """Return whether the videos at the entry have long GOPs; then skip what lies behind it."""
        if self._long_gops is None:
            piece = self.piece_at(self._entry)
            self._long_gops = any(is_long(reel) for reel in piece.reels)
            if self._long_gops:
                self._ahead = self._entry
                for reel in piece.reels:
                    first = self._entry - piece.begin + self._windows[reel.camera][0]
                    reel.ahead = max(0, first - reel.first)
        return self._long_gops

    def retire(self, piece: Piece) -> None:
        """Forget the reels of a piece all of whose pictures are delivered."""
        # The piece itself stays, so that it is not opened again.
        piece.reels.clear()

    def reels(self) -> list[Reel]:
        """Return all reels that are open."""
        return [reel for piece in self._pieces.values() for reel in piece.reels]

    def _open(self, round_number: int, slot: int, block: int) -> Piece:
        lane, line = self._lane, self._tour.plan.line
        episode, origin = int(line.episodes[slot]), int(line.starts[slot]) - self._begin
        first = max(0, origin, block * self._block)
        stop = min(lane.length, int(line.starts[slot + 1]) - self._begin, (block + 1) * self._block)
        turns = turns_in_lane(lane, first, stop) - lane.entry
        shift = round_number * lane.length
        places = turns + shift if self._is_conveyor else turns % lane.length
        positions = places * self._tour.plan.lanes + self._number
        ours = (places >= 0) & (places < lane.length) & self._is_delivered(positions)
        videos = self._share_of(block).videos
        reels = []
        if ours.any() and videos and episode not in self._tour.plan.quarantined:
            samples = np.arange(first - origin, stop - origin)[ours]
            steps = (positions[ours] - self._tour.start) // self._tour.cut.step_size
            reels = [self._open_reel(camera, episode, samples, steps) for camera in videos]
            for reel in reels:
                reel.is_behind = self._is_conveyor and stop + shift <= self._entry
        return Piece(episode, origin + shift, first + shift, stop + shift, reels)

    def _is_delivered(self, positions: Ints) -> npt.NDArray[np.bool_]:
        tour = self._tour
        inside = (positions >= tour.start) & (positions < tour.stop)
        ours: npt.NDArray[np.bool_] = inside & (positions % tour.cut.world_size == tour.cut.rank)
        return ours
