# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from collections.abc import Iterator

from hypothesis import given

from robostream.batches.lane_lookahead import LaneLookahead, LaneShare
from robostream.batches.prefetch import Prefetcher
from robostream.plan import Schedule, UpcomingPart, margin_frames, schedule_steps
from tests.parameters import examples
from tests.plan.schedules import lanes_of, tours

ALL = LaneShare(rows=True, videos=[0, 1], others=[], windows=[(0, 0)] * 2)


class Owner:
    """Somebody who has bytes fetched ahead."""


def lane_of(tour: Schedule, number: int) -> LaneLookahead:
    def never(*_: object) -> None:
        raise AssertionError("what comes is found out without opening anything")

    return LaneLookahead(tour, number, lambda *_: ALL, never, stagger=0)  # type: ignore[arg-type]


def frames_of(coming: UpcomingPart) -> set[tuple[int, int]]:
    return {(coming.episode, frame) for frame in range(coming.first, coming.stop)}


@given(tour=tours())
@examples(60)
def test_what_comes_is_what_is_delivered(tour: Schedule) -> None:
    """Each sample's frame lies in a part that comes, with a step that is not after its own."""
    numbers = lanes_of(tour)
    lanes = {number: lane_of(tour, number) for number in numbers}
    coming = {number: list(lane.coming()) for number, lane in lanes.items()}
    for share in schedule_steps(tour, numbers):
        for at, frame in zip(share.lanes, share.frames, strict=True):
            number = numbers[at]
            lane_part, own = lanes[number].part_at(frame)
            place = lane_part.episode, own
            if place[0] in tour.plan.quarantined:
                continue
            parts = [part for part in coming[number] if place in frames_of(part)]
            assert len(parts) >= 1
            assert min(part.step for part in parts) <= share.step


@given(tour=tours())
@examples(60)
def test_what_is_due_at_first_comes_apart(tour: Schedule) -> None:
    """No part reaches beyond the margin before the first head, where it begins before that."""
    for number in lanes_of(tour):
        lane, _ = tour.plan.lane(number)
        margin = margin_frames(lane.window)
        if not tour.plan.shuffle or lane.window == lane.length:
            continue
        # The first part begins before the window, where its episode does.
        for part in list(lane_of(tour, number).coming())[1:]:
            assert part.at >= margin or part.at + part.stop - part.first <= margin


def pieces(count: int, length: int) -> Iterator[UpcomingPart]:
    return (UpcomingPart(n, n + 1, n * length, n, 0, length, True, [0]) for n in range(count))


class Noted(list[int]):
    """Episodes in the order in which threads note them."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def note(self, coming: UpcomingPart) -> None:
        """Note an episode."""
        with self._changed:
            self.append(coming.episode)
            self._changed.notify_all()

    def wait_until(self, wanted: set[int]) -> None:
        """Wait until these are noted; a hang fails by the suite's time limit."""
        with self._changed:
            self._changed.wait_for(lambda: set(self) >= wanted)


def test_pieces_are_fetched_as_they_come_near() -> None:
    """Those that are reached and two more, of each lane; then further as steps pass.

    They are released when their last step is past, and those that are left when all ends.
    """
    owner, fetched, released = Owner(), Noted(), Noted()
    prefetcher = Prefetcher(
        owner,
        [pieces(10, 100)],
        fetched.note,
        released.note,
        requests=4,
        frames_per_step=10,
        margin=50,
    )
    fetched.wait_until({0, 1, 2})
    assert sorted(fetched) == [0, 1, 2]
    prefetcher.advance(2, 2)
    released.wait_until({0})
    assert released == [0]
    prefetcher.advance(20, 20)
    fetched.wait_until({0, 1, 2, 3, 4})
    assert sorted(fetched) == [0, 1, 2, 3, 4]
    prefetcher.advance(1000, 1000)
    fetched.wait_until(set(range(10)))

    assert sorted(fetched) == list(range(10))
    prefetcher.close()
    released.wait_until(set(range(10)))
    assert sorted(released) == list(range(10))


def test_the_most_urgent_is_fetched_first() -> None:
    """In whatever order lanes are: no thread begins before all that is due is queued."""
    owner, fetched = Owner(), Noted()
    one_has_begun, all_have_begun = threading.Event(), threading.Event()

    def fetch(coming: UpcomingPart) -> None:
        one_has_begun.set()
        fetched.note(coming)
        if len(fetched) == 4:
            all_have_begun.set()
        all_have_begun.wait()

    def lane(step: int) -> Iterator[UpcomingPart]:
        if step == 0:
            one_has_begun.wait(0.2)  # a chance for threads that would begin too early
        yield UpcomingPart(step, step, 0, step, 0, 1, True, [0])

    lanes = [lane(step) for step in reversed(range(9))]
    prefetcher = Prefetcher(owner, lanes, fetch, fetch, requests=4, frames_per_step=1, margin=9)
    all_have_begun.wait()

    assert sorted(fetched[:4]) == [0, 1, 2, 3]
    prefetcher.close()


def test_an_error_ends_nothing() -> None:
    """Whoever needs the bytes will meet it; the next piece is fetched."""
    owner, fetched = Owner(), Noted()

    def fetch(coming: UpcomingPart) -> None:
        if coming.episode == 0:
            raise OSError("no network")
        fetched.note(coming)

    prefetcher = Prefetcher(
        owner, [pieces(3, 1)], fetch, fetch, requests=4, frames_per_step=1, margin=9
    )
    fetched.wait_until({1, 2})

    assert sorted(fetched) == [1, 2]
    prefetcher.close()


def test_threads_end_with_their_owner() -> None:
    """Also where nobody closes the prefetcher."""
    before = set(threading.enumerate())
    owner = Owner()
    Prefetcher(owner, [], print, print, requests=4, frames_per_step=1, margin=0)
    started = set(threading.enumerate()) - before
    del owner
    for thread in started:
        thread.join()

    assert len(started) == 4
    assert not any(thread.is_alive() for thread in started)
