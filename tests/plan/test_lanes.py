# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import lanes as lane_module
from robostream.plan.hashing import below, word, words
from robostream.plan.lanes import (
    MAX_WINDOW,
    Lane,
    exchanged_at,
    places_in_lane,
    slice_lane,
)
from tests.plan.spec import lane_order

LANES = st.integers(1, 120).flatmap(
    lambda length: st.builds(
        Lane,
        key=st.integers(0, 2**64 - 1),
        length=st.just(length),
        window=st.integers(1, length),
        entry=st.integers(0, length - 1),
    )
)


@given(lane=LANES)
def test_a_lane_leaves_in_the_order_of_the_definition(lane: Lane) -> None:
    """Vectorised and plain, the order is the same, and each frame leaves once."""
    order = slice_lane(lane, 0, lane.length).tolist()

    assert order == lane_order(lane.key, lane.length, lane.window, lane.entry)
    assert sorted(order) == list(range(lane.length))


@given(lane=LANES, bounds=st.tuples(st.integers(0, 120), st.integers(0, 120)))
def test_any_slice_is_that_part_of_the_whole(lane: Lane, bounds: tuple[int, int]) -> None:
    """A slice does not depend on where one begins to look."""
    start, stop = sorted(min(bound, lane.length) for bound in bounds)

    assert (
        slice_lane(lane, start, stop).tolist()
        == slice_lane(lane, 0, lane.length)[start:stop].tolist()
    )


@given(lane=LANES, bounds=st.tuples(st.integers(0, 120), st.integers(0, 120)))
def test_places_undo_slices(lane: Lane, bounds: tuple[int, int]) -> None:
    """The place of a frame is where a slice finds it."""
    start, stop = sorted(min(bound, lane.length) for bound in bounds)
    order = slice_lane(lane, 0, lane.length)
    places = places_in_lane(lane, start, stop)

    assert order[places].tolist() == list(range(start, stop))


def test_long_slices_are_cut_into_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stretches bound the memory and change nothing."""
    lane = Lane(key=7, length=1000, window=30, entry=555)
    order, places = slice_lane(lane, 0, 1000), places_in_lane(lane, 0, 1000)
    monkeypatch.setattr(lane_module, "_MIN_STRETCH", 1)

    assert slice_lane(lane, 0, 1000).tolist() == order.tolist()
    assert places_in_lane(lane, 0, 1000).tolist() == places.tolist()


@given(lane=LANES, data=st.data())
def test_what_is_exchanged_makes_up_the_difference(lane: Lane, data: st.DataObject) -> None:
    """Frames that left between two turns = frames passed + left early - missing, at both ends."""
    place = data.draw(st.integers(0, lane.length))
    counted = np.zeros(lane.length, dtype=int)
    for sign, turn in ((1, lane.entry + place), (-1, lane.entry)):
        early, missing = exchanged_at(lane, turn)
        np.add.at(counted, np.arange(turn) % lane.length, sign)
        np.add.at(counted, early, sign)
        np.add.at(counted, missing, -sign)
    gone = np.bincount(slice_lane(lane, 0, place), minlength=lane.length)

    assert counted.tolist() == gone.tolist()


def test_a_window_of_one_keeps_the_order() -> None:
    """With a window of one frame, frames are not delayed and leave in order."""
    assert slice_lane(Lane(key=3, length=50, window=1, entry=0), 0, 50).tolist() == list(range(50))


def test_a_window_of_the_whole_lane_is_a_uniform_shuffle() -> None:
    """Of the 24 orders of 4 frames, each comes up about as often as the others."""
    counts: dict[tuple[int, ...], int] = {}
    for key in range(4800):
        lane = Lane(key=key, length=4, window=4, entry=word(1, key) % 4)
        order = tuple(slice_lane(lane, 0, 4).tolist())
        counts[order] = counts.get(order, 0) + 1
    chi_square = sum((count - 200) ** 2 / 200 for count in counts.values())

    assert len(counts) == 24
    assert chi_square < 49.7  # 23 degrees of freedom, one in a thousand


def test_a_frame_stays_within_its_window() -> None:
    """The frame of turn i is less than a window away from i, so only a pool of episodes is open."""
    lane = Lane(key=5, length=30_000, window=700, entry=0)
    off = np.abs(slice_lane(lane, 0, lane.length) - np.arange(lane.length))

    assert np.minimum(off, lane.length - off).max() < lane.window


@pytest.mark.parametrize(("length", "window"), [(5, 0), (5, 6), (2 * MAX_WINDOW, MAX_WINDOW + 1)])
def test_windows_out_of_bounds_are_refused(length: int, window: int) -> None:
    """A window has a frame, fits the lane, and fits a ticket."""
    with pytest.raises(ValueError, match="want 1 <= window"):
        Lane(key=0, length=length, window=window, entry=0)


def test_the_largest_window_fits_its_tickets() -> None:
    """At the largest window, frames still come by ascending key, within a window of their turn."""
    lane = Lane(key=9, length=3 * MAX_WINDOW, window=MAX_WINDOW, entry=0)
    turns = np.arange(2 * MAX_WINDOW, 2 * MAX_WINDOW + 1000)
    frames = slice_lane(lane, int(turns[0]), int(turns[-1]) + 1)
    keys = frames + below(MAX_WINDOW, words(lane.key, frames))

    assert np.all(np.diff(keys) >= 0)
    assert np.all((turns <= keys) & (keys < turns + MAX_WINDOW))
    assert np.unique(frames).size == 1000
