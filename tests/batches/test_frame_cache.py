# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.batches import PrivateFrameCache
from robostream.batches.clip import Clip, Clock
from robostream.decode import FrameLayout, kept_layout
from tests.batches.clips import clip_of

SMALL = kept_layout("rgb", 32, 32, 0, 0)
LARGE = kept_layout("rgb", 640, 480, 0, 0)


def put(shelf: PrivateFrameCache, reel: Clip, picture: int, layout: FrameLayout = SMALL) -> bool:
    """Keep a picture filled with its number; return whether it got in."""
    slot = shelf.take(reel, picture, layout)
    if slot is None:
        return False
    shelf.memory(slot).content[:] = picture % 251
    reel.slots[picture] = slot
    return True


def kept(shelf: PrivateFrameCache, reel: Clip) -> list[int]:
    """Return the pictures of a reel that are kept, checking their bytes."""
    pictures = [picture for picture, slot in enumerate(reel.slots) if slot >= 0]
    for picture in pictures:
        assert np.all(shelf.memory(reel.slots[picture]).content == picture % 251)
    return pictures


@given(
    due=st.lists(st.integers(1, 500), min_size=1, max_size=60, unique=True),
    room=st.integers(1, 15),
    shuffler=st.randoms(use_true_random=False),
)
def test_the_pictures_delivered_soonest_stay(
    due: list[int], room: int, shuffler: random.Random
) -> None:
    """Put in one by one in any order, those left in a small shelf are the ones due soonest."""
    reel = clip_of(due)
    shelf = PrivateFrameCache(room * SMALL.nbytes)
    pictures = list(range(len(due)))
    shuffler.shuffle(pictures)
    for picture in pictures:
        put(shelf, reel, picture)
    soonest = sorted(range(len(due)), key=lambda picture: due[picture])[:room]

    assert kept(shelf, reel) == sorted(soonest)
    assert shelf.evictions <= max(len(due) - room, 0)


@given(
    reels=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=60), min_size=1, max_size=4),
    room=st.integers(1, 60),
    now=st.integers(0, 20),
)
def test_nothing_gives_way_to_a_picture_delivered_later(
    reels: list[list[int]], room: int, now: int
) -> None:
    """A picture is dropped only for one due sooner; so those of the current batch stay."""
    clock = Clock()
    opened = [clip_of(steps, clock=clock) for steps in reels]
    shelf = PrivateFrameCache(room * SMALL.nbytes)
    clock.step = now
    for reel in opened:
        for picture in range(len(reel)):
            before = [(r, p) for r in opened for p in kept(shelf, r)]
            due = int(reel.due(np.array([picture]))[0])
            is_in = put(shelf, reel, picture)
            gone = [(r, p) for r, p in before if r.slots[p] < 0]

            assert len(gone) <= 1
            assert all(int(r.due(np.array([p]))[0]) > due for r, p in gone)
            assert is_in or not gone
            assert len(before) < room or is_in == bool(gone)


def test_a_released_slot_is_taken_next() -> None:
    """A slot that was used before is taken first, so that no fresh memory is touched."""
    reel = clip_of([3, 4, 5])
    shelf = PrivateFrameCache(10 * SMALL.nbytes)
    put(shelf, reel, 0)
    put(shelf, reel, 1)
    slot = reel.slots[0]
    shelf.release(slot)
    reel.slots[0] = -1
    put(shelf, reel, 2)

    assert reel.slots[2] == slot
    assert shelf.evictions == 0


def test_steps_that_are_over_do_not_protect() -> None:
    """Pictures that are not delivered any more are dropped first."""
    clock = Clock()
    reel = clip_of([1, 9, 8], clock=clock)
    shelf = PrivateFrameCache(2 * SMALL.nbytes)
    put(shelf, reel, 0)
    put(shelf, reel, 1)
    clock.step = 2
    put(shelf, reel, 2)

    assert kept(shelf, reel) == [1, 2]


def fill(shelf: PrivateFrameCache, clock: Clock, budget: int) -> Clip:
    """Fill a shelf with small pictures due from step 1 on."""
    reel = clip_of(list(range(1, budget // SMALL.nbytes + 1)), clock=clock)
    for picture in range(len(reel)):
        assert put(shelf, reel, picture)
    return reel


def test_pictures_of_another_size_get_a_block() -> None:
    """A new size gets slots when the budget is full: a block of other pictures is dropped."""
    clock = Clock()
    shelf = PrivateFrameCache(8 << 20)
    small = fill(shelf, clock, 8 << 20)
    large = clip_of([1, 2], clock=clock)

    assert put(shelf, large, 0, LARGE)
    assert put(shelf, large, 1, LARGE)
    assert kept(shelf, large) == [0, 1]
    assert 0 < len(kept(shelf, small)) < len(small)


def test_a_block_that_the_batch_needs_is_not_cleared() -> None:
    """Pictures of the batch being built stay, also for those of a size that has no room yet."""
    clock = Clock()
    shelf = PrivateFrameCache(4 << 20)
    small = fill(shelf, clock, 4 << 20)
    small.now[7] = 1
    large = clip_of([0], clock=clock)

    assert not put(shelf, large, 0, LARGE)
    assert len(kept(shelf, small)) == len(small)


def test_sizes_that_come_and_go_stay_right() -> None:
    """Blocks are cut anew many times; every kept picture holds its own bytes."""
    clock = Clock()
    shelf = PrivateFrameCache(5 << 20)
    reels = [
        (clip_of(list(range(1, 40)), clock=clock), SMALL),
        (clip_of([2] * 9, clock=clock), LARGE),
    ]
    rng = np.random.default_rng(0)
    for _ in range(600):
        reel, layout = reels[rng.integers(2)]
        picture = int(rng.integers(len(reel)))
        if reel.slots[picture] < 0:
            put(shelf, reel, picture, layout)
        else:
            shelf.release(reel.slots[picture])
            reel.slots[picture] = -1
        for one, _ in reels:
            kept(shelf, one)


@pytest.mark.parametrize("budget", [0, 1, SMALL.nbytes - 1])
def test_a_budget_below_one_picture_keeps_none(budget: int) -> None:
    """Too little memory for a picture is no error: nothing is kept."""
    reel = clip_of([0, 1, 2])
    shelf = PrivateFrameCache(budget)

    assert not any(put(shelf, reel, picture) for picture in range(3))
    assert shelf.evictions == 0
