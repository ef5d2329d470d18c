# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.batches.lane_lookahead import LaneLookahead, LaneShare
from robostream.decode import Clip, ClipUses, Clock, Deliveries, needed_frames
from robostream.plan import (
    Cut,
    EpochPlan,
    Schedule,
    WorkerShard,
    first_place,
    head_of_lane,
    schedule_steps,
    walk,
)
from tests.decode.clips import no_file
from tests.parameters import examples
from tests.plan.schedules import lanes_of, tours

OFFSETS = [np.array([0]), np.array([-5, -1, 0, 4])]
WINDOWS = [(int(offsets.min()), int(offsets.max())) for offsets in OFFSETS]


class Rehearsal:
    """Goes through one worker's lanes as a BatchBuilder does, but decodes nothing."""

    def __init__(self, tour: Schedule, duties: WorkerShard, *, gop: int = 2) -> None:
        self.tour = tour
        self.duties = duties
        self.clock = Clock()
        self.clips: list[ClipUses] = []
        self.decoded_ahead: set[tuple[ClipUses, int]] = set()
        self.delivered: Counter[tuple[int, int, str]] = Counter()
        self._gop = gop
        self._lengths = dict(
            zip(tour.plan.line.segments.episodes.tolist(), self._spans(), strict=True)
        )
        self.lanes: dict[int, LaneLookahead] = {}
        for at, number in enumerate(lanes_of(tour)):
            if not tour.plan.shuffle or any(self._share(at)):
                self.lanes[number] = self._open_lane(number, at)

    def run(self) -> None:
        """Go through all steps."""
        works = list(self.lanes.values())
        for share in schedule_steps(self.tour, list(self.lanes)):
            self.clock.move_to(share.step)
            for place, at, frame, head in zip(
                share.places, share.lanes, share.frames, share.heads, strict=True
            ):
                self._deliver(works[at], share.step, place, frame, head)

    def _deliver(self, lane: LaneLookahead, step: int, place: int, frame: int, head: int) -> None:
        part, own = lane.part_at(frame)
        self.delivered[step, place, "rows"] += part.share.rows
        if not part.share.videos:
            return
        self._run_ahead(lane, head)
        clips = lane.open(part)
        assert [uses.clip.camera for uses in clips] == part.share.videos
        for uses in clips:
            clip = uses.clip
            assert clip.episode == part.episode
            targets = np.clip(own + OFFSETS[clip.camera], 0, self._lengths[part.episode] - 1)
            for target in (targets - clip.first).tolist():
                assert uses.left[target] > 0
                uses.left[target] -= 1
                if has_caught_up(self.tour, lane, head):
                    assert (uses, target) in self.decoded_ahead
            self.delivered[step, place, str(clip.camera)] += 1

    def _run_ahead(self, lane: LaneLookahead, head: int) -> None:
        for uses, first, stop in lane.run_ahead(head):
            assert first >= 0
            assert stop <= len(uses.clip)
            # A lane is a circle: where it was entered, decoding comes by at both ends of the epoch.
            self.decoded_ahead.update((uses, frame) for frame in range(first, stop))

    def _spans(self) -> list[int]:
        return np.diff(self.tour.plan.line.starts).tolist()

    def _open_lane(self, number: int, at: int) -> LaneLookahead:
        def share_of(block: int, episode: int) -> LaneShare:
            return self._share(at if self.tour.plan.shuffle else block)

        return LaneLookahead(self.tour, number, share_of, self._open_clip, stagger=at)

    def _share(self, number: int) -> LaneShare:
        return LaneShare(self.duties.owns_rows(number), self.duties.cameras(number), [], WINDOWS)

    def _open_clip(self, camera: int, episode: int, delivered: Deliveries) -> ClipUses:
        length, offsets = self._lengths[episode], OFFSETS[camera]
        file = no_file(length, gop=self._gop)
        first, stop = needed_frames(delivered.samples, offsets, length)
        clip = Clip(
            file,
            np.arange(length)[first:stop],
            camera,
            episode,
            first,
            has_long_gops=file.index.has_long_gops,
        )
        uses = ClipUses(clip, self.clock, delivered, offsets)
        self.clips.append(uses)
        return uses


def has_caught_up(tour: Schedule, work: LaneLookahead, head: int) -> bool:
    """Return whether a lane has gone so far that all it delivers was decoded ahead."""
    lane, _ = tour.plan.lane(work._number)
    first_head = head_of_lane(lane, first_place(tour, work._number))
    return work.runs_ahead and head >= first_head + 5 * lane.window


@given(tour=tours(), num_workers=st.integers(1, 4), gop=st.sampled_from([2, 40]))
@examples(150)
def test_together_workers_deliver_everything_once(
    tour: Schedule, num_workers: int, gop: int
) -> None:
    """The rows and both cameras of each healthy sample have one owner; no frame is left over."""
    everything: Counter[tuple[int, int, str]] = Counter()
    for worker in range(num_workers):
        rehearsal = Rehearsal(tour, WorkerShard(worker, num_workers, len(OFFSETS)), gop=gop)
        rehearsal.run()
        everything += rehearsal.delivered
        assert all(set(uses.left) <= {0} for uses in rehearsal.clips)
    unfilled = tour.plan.replace(quarantined=())
    expected = [
        (batch.step, place, part)
        for batch in walk(unfilled, tour.cut, tour.start, range(tour.num_steps))
        for place, (position, episode) in enumerate(
            zip(batch.positions, batch.episodes.tolist(), strict=True)
        )
        if position < tour.plan.num_frames and episode not in tour.plan.quarantined
        for part in ("rows", "0", "1")
    ]

    assert everything == Counter(expected)


def long_tour(*, start: int, shuffle: bool = True) -> Schedule:
    """Return a tour over lanes of many windows."""
    plan = EpochPlan(
        [97, 30, 61, 200, 45, 77] * 4, seed=3, epoch=1, lanes=4, pool_size=2, shuffle=shuffle
    )
    return Schedule(plan, Cut(0, 1, 16, True), start)


@pytest.mark.parametrize("gop", [2, 40], ids=["short GOPs", "long GOPs"])
@pytest.mark.parametrize("start", [0, 700], ids=["from the start", "resumed"])
@pytest.mark.parametrize("shuffle", [True, False], ids=["shuffled", "in order"])
def test_most_pictures_are_decoded_ahead(gop: int, start: int, shuffle: bool) -> None:
    """All but those of the first windows are; and no picture that is not delivered."""
    rehearsal = Rehearsal(long_tour(start=start, shuffle=shuffle), WorkerShard(0, 1, 2), gop=gop)
    wanted: set[tuple[ClipUses, int]] = set()
    rehearsal.run()
    for uses in rehearsal.clips:
        wanted |= {(uses, frame) for frame in range(len(uses.clip))}

    assert len(rehearsal.decoded_ahead - wanted) == 0
    assert len(rehearsal.decoded_ahead) > 0.7 * len(wanted)


@pytest.mark.parametrize(("gop", "camera", "runs"), [(2, 0, False), (2, 1, True), (8, 0, True)])
def test_tiny_gops_without_a_window_are_not_decoded_ahead(
    gop: int, camera: int, runs: bool
) -> None:
    """Camera 0 has no window of its own; camera 1 has one, whose pictures come again."""
    rehearsal = Rehearsal(long_tour(start=0), WorkerShard(0, 1, 2), gop=gop)
    for work in rehearsal.lanes.values():
        work._share_of = lambda block, episode: LaneShare(False, [camera], [], WINDOWS)
    seen = [work.run_ahead(work._first_head + 300) for work in rehearsal.lanes.values()]

    assert any(seen) is runs


def test_a_retired_part_is_not_opened_again() -> None:
    """A retired part has no clips, also when it is asked for again."""
    rehearsal = Rehearsal(long_tour(start=0), WorkerShard(0, 1, 2))
    lane = rehearsal.lanes[0]
    part, _ = lane.part_at(lane._first_head)
    clips = lane.open(part)
    opened = len(rehearsal.clips)
    assert clips
    assert set(clips) <= set(lane.clips())
    part.clips.clear()

    assert lane.part_at(lane._first_head)[0] is part
    assert lane.open(part) == []
    assert len(rehearsal.clips) == opened


def test_parts_of_other_workers_are_forgotten() -> None:
    """In order, blocks take turns among workers; each remembers those with videos of its own."""
    rehearsal = Rehearsal(long_tour(start=0, shuffle=False), WorkerShard(0, 8, 1))
    rehearsal.run()
    lanes = rehearsal.lanes.values()
    owned = [part for lane in lanes for part in lane._parts.values() if part.share.videos]

    assert owned
    assert len(owned) >= sum(len(lane._opened) for lane in lanes) > 0


@given(tour=tours())
@examples(60)
def test_clips_are_fetched_in_the_parts_that_come(tour: Schedule) -> None:
    """Of each part fetched ahead, the frames that are new to its samples are fetched together."""
    rehearsal = Rehearsal(tour, WorkerShard(0, 1, len(OFFSETS)))
    for number, lane in rehearsal.lanes.items():
        first_head = head_of_lane(tour.plan.lane(number)[0], first_place(tour, number))
        for coming in lane.coming():
            part, _ = lane.part_at(first_head + coming.at)
            for uses in lane.open(part):
                clip, unfetched = uses.clip, uses.unfetched
                assert [0, *(stop for _, stop in unfetched)] == [
                    *(first for first, _ in unfetched),
                    len(clip),
                ]
                forth = WINDOWS[clip.camera][1]
                furthest = np.arange(coming.first, coming.stop) + forth - clip.first
                starts = [first for first, _ in unfetched]
                ranges = np.searchsorted(starts, np.clip(furthest, 0, len(clip) - 1), "right")
                assert len(set(ranges.tolist())) == 1
