# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from robostream.decode import NEVER
from robostream.decode.render import Layout
from robostream.decode.store import FrameStore, Kept

SMALL = Layout("rgb", 32, 32, 0, 0)
LARGE = Layout("rgb", 640, 480, 0, 0)
Ints = np.ndarray


def put(store: FrameStore, file: str, frames: list[int], uses: Ints, layout: Layout) -> int:
    """Keep frames filled with their numbers; return how many got in."""
    order = np.argsort(uses[:, 0], kind="stable")
    slots = store.reserve(layout, uses[order, 0])
    chosen = order[: len(slots)]
    for slot, at in zip(slots, chosen, strict=True):
        store.memory(slot).content[:] = frames[at] % 251
    store.publish(layout, file, [frames[at] for at in chosen], slots, uses[chosen])
    return len(slots)


def kept_frames(store: FrameStore, file: str, count: int) -> list[int]:
    """Return which of the first `count` frames are kept, checking their bytes."""
    found = store.pin(file, range(count))
    for one in found:
        assert np.all(one.memory.content == one.frame % 251)
    store.unpin(found)
    return [one.frame for one in found]


def table_of(uses: dict[int, list[int]]) -> object:
    """Return next uses looked up in a table, three to a row."""

    def look_up(file: str, frames: Ints, after: int) -> Ints:
        rows = np.full((len(frames), 3), NEVER)
        for row, frame in zip(rows, frames.tolist(), strict=True):
            ahead = [position for position in uses.get(frame, []) if position > after][:3]
            row[: len(ahead)] = ahead
        return rows

    return look_up


def new_store(
    budget: int, uses: object | None = None, reorder: int = 0, keep_used: bool = True
) -> FrameStore:
    """Return a store in RAM."""
    return FrameStore(
        budget,
        folder=None,
        next_uses=uses,
        reorder=reorder,
        keep_used=keep_used,  # type: ignore[arg-type]
    )


@given(
    due=st.lists(st.integers(1, 1000), min_size=1, max_size=60, unique=True),
    room=st.integers(1, 30),
)
def test_the_soonest_used_stay(due: list[int], room: int) -> None:
    """Put in one by one in any order, the frames left are those used soonest."""
    store = new_store(room * SMALL.nbytes, table_of({}))
    for frame, at in enumerate(due):
        put(store, "a", [frame], np.array([[at]]), SMALL)
    soonest = sorted(range(len(due)), key=lambda frame: due[frame])[:room]

    assert kept_frames(store, "a", len(due)) == sorted(soonest)
    assert store.evictions <= max(len(due) - room, 0)


def test_without_a_plan_the_least_recent_go() -> None:
    """With no next uses, what was used longest ago makes room."""
    store = new_store(3 * SMALL.nbytes)
    no_uses = np.full((1, 1), -NEVER)
    for frame in (0, 1, 2):
        put(store, "a", [frame], no_uses, SMALL)
    store.unpin(store.pin("a", [0]))
    put(store, "a", [3], no_uses, SMALL)

    assert kept_frames(store, "a", 9) == [0, 2, 3]


def test_what_is_done_with_makes_room_without_evictions() -> None:
    """Frames whose uses are all past go first, once they are more than `reorder` positions back."""
    uses = {frame: [10 * (frame + 1)] for frame in range(6)}
    store = new_store(3 * SMALL.nbytes, table_of(uses), reorder=5)
    for frame in range(3):
        put(store, "a", [frame], np.array([uses[frame]]), SMALL)
    store.advance(24)
    assert put(store, "a", [5], np.array([uses[5]]), SMALL) == 1
    assert kept_frames(store, "a", 9) == [1, 2, 5]
    store.advance(26)
    put(store, "a", [4], np.array([uses[4]]), SMALL)

    assert kept_frames(store, "a", 9) == [2, 4, 5]
    assert store.evictions == 0


def test_uses_beyond_those_told_are_asked_for_again() -> None:
    """A frame used more often than a row tells is kept on."""
    uses = {0: list(range(10, 200, 10)), 1: [15], 2: [999]}
    store = new_store(2 * SMALL.nbytes, table_of(uses))
    look_up = table_of(uses)
    for frame in (0, 1):
        put(store, "a", [frame], look_up("a", np.array([frame]), 0), SMALL)  # type: ignore[operator]
    store.advance(150)
    put(store, "a", [2], np.array([[999]]), SMALL)

    assert kept_frames(store, "a", 9) == [0, 2]


def test_a_frame_goes_with_its_last_use() -> None:
    """Its slot is the next one taken, so that no memory is touched beyond what is in use."""
    store = new_store(10 * SMALL.nbytes, table_of({}), keep_used=False)
    put(store, "a", [0, 1], np.array([[5, 8, NEVER], [6, NEVER, NEVER]]), SMALL)
    pinned = store.pin("a", [0, 1])
    store.unpin(pinned)

    assert kept_frames(store, "a", 2) == [0]
    assert kept_frames(store, "a", 2) == []
    assert store.reserve(SMALL, np.array([9])) == [pinned[0].slot]
    assert store.evictions == 0


def test_a_frame_two_threads_use_goes_with_the_second() -> None:
    """What is pinned stays, however many uses are over."""
    store = new_store(10 * SMALL.nbytes, table_of({}), keep_used=False)
    put(store, "a", [0], np.array([[5, NEVER]]), SMALL)
    first, second = store.pin("a", [0]), store.pin("a", [0])
    store.unpin(first)

    assert np.all(second[0].memory.content == 0)
    assert store.holds("a", [0]) == [True]
    store.unpin(second)
    assert store.holds("a", [0]) == [False]


def test_pinned_frames_are_never_touched() -> None:
    """A frame somebody reads stays, however far its next use; unpinned, it may go."""
    store = new_store(2 * SMALL.nbytes, table_of({}))
    put(store, "a", [0, 1], np.array([[500], [600]]), SMALL)
    pinned = store.pin("a", [0, 1])
    assert put(store, "a", [2], np.array([[1]]), SMALL) == 0
    assert [one.frame for one in pinned] == [0, 1]
    store.unpin(pinned)

    assert put(store, "a", [3], np.array([[2]]), SMALL) == 1
    assert kept_frames(store, "a", 9) == [0, 3]


def test_room_says_what_would_be_kept() -> None:
    """Free slots first; beyond them only what is used before the furthest kept frame."""
    store = new_store(3 * SMALL.nbytes, table_of({}))
    assert store.room(SMALL, 2) == (3, NEVER)
    put(store, "a", [0, 1], np.array([[50], [70]]), SMALL)

    assert store.room(SMALL, 5) == (1, 70)
    assert store.capacity(SMALL) == 3
    assert store.capacity(None) == 0


def test_frames_of_another_size_get_a_block() -> None:
    """A size that comes late is let in at the cost of the size that filled the budget."""
    store = new_store(8 << 20, table_of({}))
    count = (8 << 20) // SMALL.nbytes
    for frame in range(count):
        put(store, "a", [frame], np.array([[100 + frame]]), SMALL)

    assert put(store, "b", [0, 1], np.array([[1], [2]]), LARGE) == 2
    assert kept_frames(store, "b", 3) == [0, 1]
    assert 0 < len(kept_frames(store, "a", count)) < count


def test_a_frame_published_twice_takes_one_slot() -> None:
    """Decoded by two threads at once, a frame is kept once and the other slot is free again."""
    store = new_store(2 * SMALL.nbytes, table_of({}))
    for _ in range(5):
        assert put(store, "a", [7], np.array([[50]]), SMALL) == 1

    assert put(store, "a", [8], np.array([[60]]), SMALL) == 1
    assert kept_frames(store, "a", 9) == [7, 8]


class StoreMachine(RuleBasedStateMachine):
    """Random use of a store beside a plain model of what was put in."""

    def __init__(self) -> None:
        super().__init__()
        self.uses = {f: sorted({(f * 37 + k * 101) % 4000 for k in range(4)}) for f in range(40)}
        self.store = new_store(12 * SMALL.nbytes, table_of(self.uses), reorder=3)
        self.position = 0
        self.pinned: list[Kept] = []

    @rule(frames=st.lists(st.integers(0, 39), min_size=1, max_size=8, unique=True))
    def put(self, frames: list[int]) -> None:
        """Keep some frames that have a use ahead."""
        look_up = table_of(self.uses)
        uses = look_up("a", np.array(frames), self.store.served)  # type: ignore[operator]
        ahead = uses[:, 0] != NEVER
        if ahead.any():
            put(self.store, "a", list(np.array(frames)[ahead]), uses[ahead], SMALL)

    @rule(frames=st.lists(st.integers(0, 39), max_size=4))
    def pin(self, frames: list[int]) -> None:
        """Read some frames for a while."""
        self.pinned += self.store.pin("a", frames)

    @rule()
    def unpin(self) -> None:
        """Stop reading."""
        self.store.unpin(self.pinned)
        self.pinned = []

    @rule(steps=st.integers(0, 300))
    def advance(self, steps: int) -> None:
        """Serve samples."""
        self.position += steps
        self.store.advance(self.position)

    @invariant()
    def frames_are_what_they_were(self) -> None:
        """Every kept frame holds its own bytes, pinned ones too, and no more fit than may."""
        assert all(np.all(one.memory.content == one.frame % 251) for one in self.pinned)
        assert len(kept_frames(self.store, "a", 40)) <= 12


TestStore = StoreMachine.TestCase
TestStore.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)


def test_a_cleared_store_holds_nothing() -> None:
    """After clear, nothing is found and nothing is taken in."""
    store = new_store(4 * SMALL.nbytes, table_of({}))
    put(store, "a", [0], np.array([[5]]), SMALL)
    store.clear()

    assert store.pin("a", [0]) == []
    assert put(store, "a", [1], np.array([[5]]), SMALL) == 0


@pytest.mark.parametrize("budget", [0, 1, SMALL.nbytes - 1])
def test_a_budget_below_one_frame_keeps_none(budget: int) -> None:
    """Too little memory for a frame is no error: nothing is kept."""
    store = new_store(budget, table_of({}))

    assert put(store, "a", [0], np.array([[5]]), SMALL) == 0
