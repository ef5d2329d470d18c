# SPDX-License-Identifier: Apache-2.0
"""A lane as a conveyor: which pictures of it are decoded ahead of delivery.

The frames that leave a lane next lie in a stretch of about a window. For each frame that leaves,
the stretch moves on along the line by one frame. So decoding goes along the line too, a few frames
before the furthest one delivered, and decoded pictures wait for their delivery. When an iterator
begins, the stretch already has frames in it that nobody has decoded: their pictures are decoded
when they fall due.

If the window is most of the lane, there is no stretch that moves: every picture is decoded when it
falls due. So it is where GOPs are so short that one is hardly more than the picture itself, and no
camera has a window of its own: then only the rest of a GOP waits, which takes a third of the memory
and of the copies.

Without a shuffle, a lane delivers its frames in order. Then workers own blocks of it in turn,
instead of whole lanes.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.batches.clip import Clip, is_long, is_tiny
from robostream.plan import (
    CHUNK_FRAMES,
    DecodePacing,
    Ints,
    Schedule,
    UpcomingPart,
    first_place,
    head_of_lane,
    is_chunk_due,
    margin_frames,
    places_in_lane,
)

# A lane is a conveyor if it is at least so many windows long. In a shorter one, decoding along the
# line would hardly have caught up when the epoch ends.
_WINDOWS_PER_LANE = 3
# Without a shuffle, one worker owns so many frames of a lane, then the next one as many.
BLOCK_FRAMES = 32

OpenReel = Callable[[int, int, Ints, Ints], Clip]


class LaneShare(NamedTuple):
    """What one worker owns of the samples of a lane, or of a block of it.

    Attributes:
        rows: Whether it owns their rows.
        videos: The cameras it owns that are stored as video.
        stored: The cameras it owns whose pictures are stored in Parquet.
    """

    rows: bool
    videos: list[int]
    stored: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class LanePart:
    """The part of an episode that lies in a lane (and in one block of it).

    Frame f of the episode is frame `begin + f` of the lane; the piece is the lane's frames
    [`start`, `stop`). There is a reel for each camera that this worker owns there.
    """

    episode: int
    begin: int
    start: int
    stop: int
    reels: list[Clip]


class LaneLookahead:
    """One lane of one iterator, in a process that owns a part of it.

    Args:
        tour: What is delivered.
        number: The number of the lane in the plan.
        share_of: Returns what this worker owns of a block of the lane. With a shuffle, the whole
            lane is one block.
        windows: The least and the greatest offset of each camera's window, in frames.
        open_clip: Returns the reel of (camera, episode, sample frames, steps).
        stagger: How many frames earlier decoding begins. It differs between the lanes of a process,
            so that they do not all decode a portion for the same batch.
    """

    def __init__(
        self,
        tour: Schedule,
        number: int,
        share_of: Callable[[int], LaneShare],
        windows: list[tuple[int, int]],
        open_clip: OpenReel,
        *,
        stagger: int,
    ) -> None:
        self._tour = tour
        self._number = number
        self._lane, self._begin = tour.plan.lane(number)
        self._share_of = share_of
        self._windows = windows
        self._open_reel = open_clip
        self._is_conveyor = self._lane.length >= _WINDOWS_PER_LANE * self._lane.window
        self._block = self._lane.length if tour.plan.shuffle else BLOCK_FRAMES
        self._end = self._lane.entry + self._lane.length + self._lane.window
        self._pieces: dict[tuple[int, int], LanePart] = {}
        self._first_head = head_of_lane(self._lane, first_place(tour, number))
        self._ahead = self._first_head
        if tour.plan.shuffle:
            self._ahead -= self._lane.window + stagger % CHUNK_FRAMES
        self._samples = 0
        # Of so many frames that leave the lane, the rank delivers one.
        self._stride = tour.cut.world_size // gcd(tour.cut.world_size, tour.plan.lanes)
        margin = margin_frames(self._lane.window)
        self._pace = DecodePacing(self._first_head, margin, behind=margin + self._lane.window)
        self._cut = self._place_of_cut(margin)
        self._is_settled = not tour.plan.shuffle
        self._is_new = True

    def share(self, frame: int) -> LaneShare:
        """Return what this worker owns of the sample at a frame of the endless line."""
        return self._share_of(frame % self._lane.length // self._block)

    def locate(self, frame: int) -> tuple[int, int]:
        """Return the (episode, frame in it) of a frame of the endless line."""
        line = self._tour.plan.line
        place = self._begin + frame % self._lane.length
        slot = bisect_right(line.starts, place) - 1
        return int(line.episodes[slot]), place - int(line.starts[slot]) + int(line.firsts[slot])

    def piece_at(self, frame: int) -> LanePart:
        """Return the piece that a frame of the endless line lies in; the first call opens it."""
        place = frame % self._lane.length
        slot = bisect_right(self._tour.plan.line.starts, self._begin + place) - 1
        key = (slot, place // self._block)
        piece = self._pieces.get(key)
        if piece is None:
            piece = self._pieces[key] = self._open(*key)
        return piece

    def run_ahead(self, head: int) -> list[tuple[Clip, int, int]]:
        """Note that one more sample is delivered; return the pictures to decode ahead now.

        Args:
            head: The head of the lane with that sample.

        Returns:
            (reel, first, stop) of ranges of pictures.
        """
        if not self._is_settled:
            self._is_settled = True
            self._look_at_videos()
        if not self._is_conveyor:
            return []
        self._samples += 1
        goal = self._goal(head)
        if not is_chunk_due(self._ahead, head, goal):
            return []
        goal = min(goal, self._end)
        found: list[tuple[Clip, int, int]] = []
        while self._ahead < goal:
            piece = self.piece_at(self._ahead)
            place = self._ahead % self._lane.length
            stop = min(goal - self._ahead + place, piece.stop)
            self._ahead += stop - place
            is_first = place == piece.start or self._is_new
            self._is_new = False
            for reel in piece.reels:
                back, forth = self._windows[reel.camera]
                # Of a sample's window, only the last picture is new; the others are in the windows
                # of the samples before it. The first sample of a piece has none before it.
                first = place + (back if is_first else forth) - piece.begin - reel.first
                last = stop - 1 + forth - piece.begin - reel.first
                found.append((reel, max(first, 0), min(last, len(reel) - 1) + 1))
        return found

    @property
    def is_catching_up(self) -> bool:
        """Whether decoding is within a window of the first head.

        Of the pictures there, some leave only at the end of the epoch.
        """
        return self._ahead < self._first_head + self._lane.window

    @property
    def window_steps(self) -> int:
        """About how many steps it takes until as many frames have left as a window has."""
        return -(-self._lane.window * self._tour.plan.lanes // self._tour.cut.step_size)

    def _goal(self, head: int) -> int:
        if not self._tour.plan.shuffle:
            return head + CHUNK_FRAMES - 1 if head > self._ahead else head
        return self._pace.goal(head, self._samples * self._stride)

    def _look_at_videos(self) -> None:
        """Choose how decoding begins, and whether it runs ahead, by the first videos.

        When an iterator begins, nothing is decoded yet, and the pictures of every frame that falls
        due have to be. Decoding ahead at the same time would be twice the work. So decoding along
        the line begins a window behind the first head and catches up.

        In long GOPs it begins at the first head: there, one picture by itself costs as much as all
        pictures before it in its GOP.
        """
        reels = self.piece_at(self._first_head).reels if self._is_conveyor else []
        if any(is_long(reel) for reel in reels):
            self._ahead = self._first_head
            self._pace = replace(self._pace, behind=self._pace.margin)
        elif reels and all(
            self._windows[reel.camera] == (0, 0) and is_tiny(reel) for reel in reels
        ):
            self._is_conveyor = False

    def retire(self, piece: LanePart) -> None:
        """Forget the reels of a piece whose pictures are all delivered."""
        # The piece itself stays in the list, so that nobody opens it again.
        piece.reels.clear()

    def reels(self) -> list[Clip]:
        """Return all reels that are open."""
        return [reel for piece in self._pieces.values() for reel in piece.reels]

    def _open(self, slot: int, block: int) -> LanePart:
        line = self._tour.plan.line
        episode, origin = int(line.episodes[slot]), self._origin(slot)
        first, stop = self._bounds(slot, block)
        ours, steps = self._steps(first, stop)
        videos = self._share_of(block).videos
        reels = []
        if ours.any() and videos and episode not in self._tour.plan.quarantined:
            samples, steps = np.arange(first - origin, stop - origin)[ours], steps[ours]
            reels = [self._open_reel(camera, episode, samples, steps) for camera in videos]
            for reel in reels:
                reel.is_behind = self._is_behind(stop)
                # A picture is first needed by the sample whose window reaches furthest to it.
                shift = origin + reel.first - self._windows[reel.camera][1]
                cut = min(max(self._cut - shift, 0), len(reel))
                reel.far = [part for part in ((0, cut), (cut, len(reel))) if part[0] < part[1]]
        return LanePart(episode, origin, first, stop, reels)

    def coming(self) -> Iterator[UpcomingPart]:
        """Yield what is ours along the lane, from what lies behind the first head on, once around.

        Changes nothing, so that it goes on while pieces are opened and retired.
        """
        line, length = self._tour.plan.line, self._lane.length
        begin = self._first_head - (self._lane.window if self._tour.plan.shuffle else 0)
        frame = begin
        while frame < begin + length:
            place = frame % length
            slot = bisect_right(line.starts, self._begin + place) - 1
            block = place // self._block
            begins, ends = self._bounds(slot, block)
            first = max(begins, self._cut) if self._cut <= place else begins
            stop = min(ends, self._cut) if self._cut > place else ends
            ours, steps = self._steps(begins, ends)
            here = slice(first - begins, stop - begins)
            soon = steps[here][ours[here]]
            share, episode = self._share_of(block), int(line.episodes[slot])
            if len(soon) and any(share) and episode not in self._tour.plan.quarantined:
                origin = self._origin(slot)
                rows, at = share.rows or bool(share.stored), frame - self._first_head
                part = (episode, first - origin, stop - origin, rows, share.videos)
                yield UpcomingPart(int(soon.min()), int(steps[ours].max()), at, *part)
            frame += stop - place

    def _place_of_cut(self, margin: int) -> int:
        """Return where in the lane a piece is cut into two parts whose bytes are brought apart.

        When an iterator begins, the bytes of all frames in the window behind the first head are due
        at once, and those just before it soon. What lies further ahead in the same piece is due
        much later and would hold them up. If all of the lane is mixed, all of it is due: 0.
        """
        lane = self._lane
        if lane.window == lane.length or not self._tour.plan.shuffle:
            return 0
        return (self._first_head + margin) % lane.length

    def _origin(self, slot: int) -> int:
        """Return where frame 0 of a segment's episode would be in the lane."""
        line = self._tour.plan.line
        return int(line.starts[slot]) - int(line.firsts[slot]) - self._begin

    def _bounds(self, slot: int, block: int) -> tuple[int, int]:
        """Return the frames [first, stop) of a piece."""
        starts = self._tour.plan.line.starts
        first = max(0, int(starts[slot]) - self._begin, block * self._block)
        end = min(int(starts[slot + 1]) - self._begin, (block + 1) * self._block)
        return first, min(self._lane.length, end)

    def _steps(self, first: int, stop: int) -> tuple[npt.NDArray[np.bool_], Ints]:
        """Return which of the frames [first, stop) of the lane are ours, and the steps of all."""
        tour = self._tour
        positions = places_in_lane(self._lane, first, stop) * tour.plan.lanes + self._number
        return self._is_delivered(positions), (positions - tour.start) // tour.cut.step_size

    def _is_behind(self, stop: int) -> bool:
        """Return whether a piece that ends at `stop` lies in the window behind the first head."""
        behind = (self._first_head - stop) % self._lane.length
        return self._is_conveyor and behind < self._lane.window

    def _is_delivered(self, positions: Ints) -> npt.NDArray[np.bool_]:
        tour = self._tour
        inside = (positions >= tour.start) & (positions < tour.stop)
        ours: npt.NDArray[np.bool_] = inside & (positions % tour.cut.world_size == tour.cut.rank)
        return ours
