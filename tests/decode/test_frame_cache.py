# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import (
    Clip,
    ClipUses,
    Clock,
    DecodedFrame,
    FrameLayout,
    LruFrameCache,
    NextUseCache,
    PackedFrame,
    Uses,
    frame_layout,
)
from tests.decode.clips import no_file, uses_of

SMALL = frame_layout("rgb", 32, 32, 0, 0)
LARGE = frame_layout("rgb", 640, 480, 0, 0)


def fill_with(value: int) -> Callable[[DecodedFrame, PackedFrame], None]:
    """Return a function that packs a frame as so many bytes of one value."""

    def pack(_: DecodedFrame, packed: PackedFrame) -> None:
        packed.content[:] = value

    return pack


def put(cache: NextUseCache, uses: ClipUses, frame: int, layout: FrameLayout = SMALL) -> bool:
    """Cache a frame filled with its number; return whether it got in."""
    return cache.add(uses, frame, DecodedFrame(layout, ()), fill_with(frame % 251))


def cached(cache: NextUseCache, uses: ClipUses) -> list[int]:
    """Return the frames of a clip that are cached, checking their bytes."""
    slots = uses.slots
    frames = [frame for frame in range(len(uses.clip)) if slots[frame] >= 0]
    for frame in frames:
        (packed,) = cache.packed(uses.clip, [slots[frame]])
        assert np.all(packed.content == frame % 251)
    return frames


def opened(cache: NextUseCache, steps: list[int], clock: Clock | None = None) -> ClipUses:
    """Return a clip that a cache has opened."""
    uses = uses_of(steps, clock=clock)
    cache.open(uses)
    return uses


@given(
    due=st.lists(st.integers(1, 500), min_size=1, max_size=60, unique=True),
    room=st.integers(1, 15),
    shuffler=st.randoms(use_true_random=False),
)
def test_the_frames_delivered_soonest_stay(
    due: list[int], room: int, shuffler: random.Random
) -> None:
    """Put in one by one in any order, those left in a small cache are the ones due soonest."""
    cache = NextUseCache(room * SMALL.nbytes)
    uses = opened(cache, due)
    frames = list(range(len(due)))
    shuffler.shuffle(frames)
    for frame in frames:
        put(cache, uses, frame)
    soonest = sorted(range(len(due)), key=lambda frame: due[frame])[:room]

    assert cached(cache, uses) == sorted(soonest)
    assert cache.take_evictions() <= max(len(due) - room, 0)


@given(
    clips=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=60), min_size=1, max_size=4),
    room=st.integers(1, 60),
    now=st.integers(0, 20),
)
def test_nothing_gives_way_to_a_frame_delivered_later(
    clips: list[list[int]], room: int, now: int
) -> None:
    """A frame is dropped only for one due sooner; so those of the current batch stay."""
    clock = Clock()
    cache = NextUseCache(room * SMALL.nbytes)
    every = [opened(cache, steps, clock) for steps in clips]
    clock.move_to(now)
    for uses in every:
        for frame in range(len(uses.clip)):
            before = [(u, f) for u in every for f in cached(cache, u)]
            due = int(uses.due(np.array([frame]))[0])
            is_in = put(cache, uses, frame)
            gone = [(u, f) for u, f in before if u.slots[f] < 0]

            assert len(gone) <= 1
            assert all(int(u.due(np.array([f]))[0]) > due for u, f in gone)
            assert is_in or not gone
            assert len(before) < room or is_in == bool(gone)


@given(
    due=st.lists(st.integers(1, 500), min_size=1, max_size=15, unique=True),
    frames=st.integers(1, 15),
    until=st.integers(0, 500),
    now=st.integers(0, 250),
)
def test_only_frames_due_later_make_room(due: list[int], frames: int, until: int, now: int) -> None:
    """A full cache has room for as many frames as it holds that are due after `until` steps."""
    clock = Clock()
    cache = NextUseCache(len(due) * SMALL.nbytes)
    uses = opened(cache, due, clock)
    for frame in range(len(due)):
        put(cache, uses, frame)
    clock.move_to(now)
    late = [step for step in due if step < now or step - now > until]

    assert not cache.has_room(frames)
    assert cache.has_room(frames, until) == (len(late) >= frames)


@pytest.mark.parametrize(("due", "has_room"), [(50, False), (900, True)])
def test_frames_of_every_size_must_make_room(due: int, has_room: bool) -> None:
    """Else those of one size that are due soon would go for others of their size."""
    cache = NextUseCache(8 << 20)
    large = opened(cache, [due] * 4)
    small = opened(cache, [900] * ((4 << 20) // SMALL.nbytes))
    for uses, layout in ((large, LARGE), (small, SMALL)):
        for frame in range(len(uses.clip)):
            assert put(cache, uses, frame, layout)

    assert cache.has_room(4, 500) == has_room


def test_a_released_slot_is_taken_next() -> None:
    """A slot that was used before is taken first, so that no fresh memory is touched."""
    cache = NextUseCache(10 * SMALL.nbytes)
    uses = opened(cache, [3, 4, 5])
    put(cache, uses, 0)
    put(cache, uses, 1)
    slots = uses.slots
    slot = slots[0]
    cache.release(uses, [0])
    put(cache, uses, 2)

    assert slots == [-1, slots[1], slot]
    assert cache.take_evictions() == 0


def test_steps_that_are_over_do_not_protect() -> None:
    """Pictures that are not delivered any more are dropped first."""
    clock = Clock()
    cache = NextUseCache(2 * SMALL.nbytes)
    uses = opened(cache, [1, 9, 8], clock)
    put(cache, uses, 0)
    put(cache, uses, 1)
    clock.move_to(2)
    put(cache, uses, 2)

    assert cached(cache, uses) == [1, 2]


def fill(cache: NextUseCache, clock: Clock, budget: int) -> ClipUses:
    """Fill a cache with small frames due from step 1 on."""
    uses = opened(cache, list(range(1, budget // SMALL.nbytes + 1)), clock)
    for frame in range(len(uses.clip)):
        assert put(cache, uses, frame)
    return uses


def test_frames_of_another_size_get_a_block() -> None:
    """A new size gets slots when the budget is full: a block of other frames is dropped."""
    clock = Clock()
    cache = NextUseCache(8 << 20)
    small = fill(cache, clock, 8 << 20)
    large = opened(cache, [1, 2], clock)

    assert put(cache, large, 0, LARGE)
    assert put(cache, large, 1, LARGE)
    assert cached(cache, large) == [0, 1]
    assert 0 < len(cached(cache, small)) < len(small.clip)


def test_a_block_that_was_never_full_gives_way() -> None:
    """Most of its slots have never held a frame."""
    clock = Clock()
    cache = NextUseCache(4 << 20)
    small = opened(cache, [5], clock)
    large = opened(cache, [1], clock)

    assert put(cache, small, 0)
    assert put(cache, large, 0, LARGE)
    assert (cached(cache, small), cached(cache, large)) == ([], [0])


def test_a_block_that_the_batch_needs_is_not_cleared() -> None:
    """Pictures of the batch being built stay, also for those of a size that has no room yet."""
    clock = Clock()
    cache = NextUseCache(4 << 20)
    small = fill(cache, clock, 4 << 20)
    small.now[7] = 1
    large = opened(cache, [0], clock)

    assert not put(cache, large, 0, LARGE)
    assert len(cached(cache, small)) == len(small.clip)


def test_sizes_that_come_and_go_stay_right() -> None:
    """Blocks are cut anew many times; every kept frame holds its own bytes."""
    clock = Clock()
    cache = NextUseCache(5 << 20)
    clips = [
        (opened(cache, list(range(1, 40)), clock), SMALL),
        (opened(cache, [2] * 9, clock), LARGE),
    ]
    rng = np.random.default_rng(0)
    for _ in range(600):
        uses, layout = clips[rng.integers(2)]
        frame = int(rng.integers(len(uses.clip)))
        if uses.slots[frame] < 0:
            put(cache, uses, frame, layout)
        else:
            cache.release(uses, [frame])
        for one, _ in clips:
            cached(cache, one)


def test_a_closed_clip_holds_no_slots() -> None:
    """Its frames are dropped, and others take their slots."""
    cache = NextUseCache(2 * SMALL.nbytes)
    uses = opened(cache, [1, 2])
    assert put(cache, uses, 0)
    assert put(cache, uses, 1)
    cache.close(uses)
    other = opened(cache, [8, 9])

    assert put(cache, other, 0)
    assert put(cache, other, 1)
    assert cache.take_evictions() == 0


@pytest.mark.parametrize("budget", [0, 1, SMALL.nbytes - 1])
def test_a_budget_below_one_frame_keeps_none(budget: int) -> None:
    """Too little memory for a frame is no error: nothing is cached."""
    cache, recent = NextUseCache(budget), LruFrameCache(budget)
    uses = opened(cache, [0, 1, 2])

    assert not any(put(cache, uses, frame) for frame in range(3))
    assert cache.take_evictions() == 0
    assert not put_recent(recent, A, 0)
    assert recent.slots(A)[0] < 0


LAYOUTS = [
    FrameLayout("rgb", 32, 32, 0, 0),
    FrameLayout("rgb", 64, 32, 0, 0),
    FrameLayout("yuv420p", 64, 48, 2, 1),
    FrameLayout("depth", 160, 120, 0, 0),
]
A, B = (Clip(replace(no_file(40), name=name), range(40)) for name in ("a", "b"))


def uses_in(cache: LruFrameCache, clip: Clip) -> Uses:
    """Return a file's frames as a read finds them in a cache."""
    return Uses(clip, {}, cache.slots(clip))


def put_recent(
    cache: LruFrameCache, clip: Clip, frame: int, layout: FrameLayout = LAYOUTS[0]
) -> bool:
    """Cache a frame filled with its number; return whether it got in."""
    return cache.add(uses_in(cache, clip), frame, DecodedFrame(layout, ()), fill_with(frame))


actions = st.tuples(
    st.sampled_from(["find", "add", "add", "release"]),
    st.integers(0, 30),
    st.sampled_from(LAYOUTS),
)


@given(budget=st.integers(0, 120_000), steps=st.lists(actions, max_size=80))
def test_the_least_recently_used_go_first(
    budget: int, steps: list[tuple[str, int, FrameLayout]]
) -> None:
    """What is cached, in which order, is what an ordered dict with a budget in bytes would hold."""
    cache = LruFrameCache(budget)
    slots = cache.slots(A)
    model: OrderedDict[int, FrameLayout] = OrderedDict()
    evictions = 0
    for action, frame, layout in steps:
        if action == "add":
            cache.release(uses_in(cache, A), [frame])
            model.pop(frame, None)
            if put_recent(cache, A, frame, layout):
                model[frame] = layout
            while sum(one.nbytes for one in model.values()) > budget:
                model.popitem(last=False)
                evictions += 1
        elif action == "release":
            cache.release(uses_in(cache, A), [frame])
            model.pop(frame, None)
        elif slots[frame] >= 0:
            assert len(cache.packed(A, [slots[frame]])) == 1
            model.move_to_end(frame)

        assert cache._frames.weight == sum(one.nbytes for one in model.values()) <= budget
        evictions -= cache.take_evictions()
        assert evictions == 0
        assert [frame for _, frame in cache._frames] == list(model)
    for frame, layout in model.items():
        (packed,) = cache.packed(A, [slots[frame]])
        assert packed.layout is layout
        assert np.all(packed.content == frame)


def test_a_frame_larger_than_the_budget_evicts_nothing() -> None:
    """A frame larger than the budget has no room even in an empty cache."""
    cache = LruFrameCache(2 * LAYOUTS[0].nbytes)
    put_recent(cache, A, 0)

    assert not put_recent(cache, B, 0, LAYOUTS[3])
    assert cache.slots(A)[0] >= 0


def test_memory_is_used_again() -> None:
    """A frame takes over the memory of one of its size that makes way for it."""
    cache = LruFrameCache(3 * LAYOUTS[0].nbytes)
    addresses = set()
    for frame in range(40):
        assert put_recent(cache, A, frame)
        (packed,) = cache.packed(A, [cache.slots(A)[frame]])
        addresses.add(packed.address)

    assert len(addresses) == 3


def test_files_do_not_share_frames() -> None:
    """A frame is known by its file and number, also when the file was closed in between."""
    cache = LruFrameCache(10**6)
    put_recent(cache, A, 7)
    again = Clip(replace(no_file(40), name="a"), range(40))

    assert cache.slots(A)[7] == cache.slots(again)[7] >= 0
    assert cache.slots(B)[7] < 0


def test_files_without_frames_leave_nothing_behind() -> None:
    """However many files were looked at, only cached frames take memory."""
    cache = LruFrameCache(2 * LAYOUTS[0].nbytes)
    for number in range(100):
        clip = Clip(replace(no_file(40), name=str(number)), range(40))
        assert cache.slots(clip)[0] < 0
        put_recent(cache, clip, 0)

    assert len(cache._frames) == 2


def test_a_cleared_cache_holds_nothing() -> None:
    """After clear nothing is found, and there is room again."""
    cache = LruFrameCache(LAYOUTS[0].nbytes)
    put_recent(cache, A, 0)
    cache.clear()

    assert cache.slots(A)[0] < 0
    assert cache._frames.weight == 0
    assert put_recent(cache, A, 1)
