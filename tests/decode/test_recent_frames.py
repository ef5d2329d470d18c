# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import FrameLayout
from robostream.decode.recent_frames import RecentFrames

LAYOUTS = [
    FrameLayout("rgb", 32, 32, 0, 0),
    FrameLayout("rgb", 64, 32, 0, 0),
    FrameLayout("yuv420p", 64, 48, 2, 1),
    FrameLayout("depth", 160, 120, 0, 0),
]
SMALL = LAYOUTS[0]


def put(recent: RecentFrames, file: str, frame: int, layout: FrameLayout = SMALL) -> bool:
    """Keep a picture filled with its number; return whether it got in."""
    memory = recent.add(file, frame, layout)
    if memory is not None:
        memory.content[:] = frame
    return memory is not None


steps = st.tuples(
    st.sampled_from(["find", "add", "add", "forget"]), st.integers(0, 30), st.sampled_from(LAYOUTS)
)


@given(budget=st.integers(0, 120_000), steps=st.lists(steps, max_size=80))
def test_the_least_recently_used_go_first(
    budget: int, steps: list[tuple[str, int, FrameLayout]]
) -> None:
    """What is kept, in which order, is what an ordered dict with a budget in bytes would hold."""
    recent = RecentFrames(budget)
    model: OrderedDict[int, FrameLayout] = OrderedDict()
    evictions = 0
    for action, frame, layout in steps:
        if action == "add":
            if put(recent, "a", frame, layout):
                model.pop(frame, None)
                model[frame] = layout
            while sum(one.nbytes for one in model.values()) > budget:
                model.popitem(last=False)
                evictions += 1
        elif action == "forget":
            recent.forget("a", frame)
            model.pop(frame, None)
        elif recent.find("a", frame) is not None:
            model.move_to_end(frame)

        assert recent.nbytes == sum(one.nbytes for one in model.values()) <= budget
        evictions -= recent.take_evictions()
        assert evictions == 0
        assert [frame for _, frame in recent._kept] == list(model)
    for frame, layout in model.items():
        kept = recent.find("a", frame)
        assert kept is not None
        assert kept.layout is layout
        assert np.all(kept.memory.content == frame)


@pytest.mark.parametrize("budget", [0, 1, SMALL.nbytes - 1])
def test_a_budget_below_one_frame_keeps_none(budget: int) -> None:
    """Too little memory for a frame is no error: nothing is kept."""
    recent = RecentFrames(budget)

    assert not put(recent, "a", 0)
    assert ("a", 0) not in recent


def test_a_picture_larger_than_the_budget_evicts_nothing() -> None:
    """A picture larger than the budget has no room even in an empty store."""
    recent = RecentFrames(2 * SMALL.nbytes)
    put(recent, "a", 0)

    assert not put(recent, "b", 0, LAYOUTS[3])
    assert recent.find("a", 0) is not None


def test_memory_is_used_again() -> None:
    """A picture takes over the memory of one of its size that makes way for it."""
    recent = RecentFrames(3 * SMALL.nbytes)
    addresses = set()
    for frame in range(50):
        memory = recent.add("a", frame, SMALL)
        assert memory is not None
        addresses.add(memory.address)

    assert len(addresses) == 3


def test_files_do_not_share_frames() -> None:
    """A frame is known by its file and number."""
    recent = RecentFrames(10**6)
    put(recent, "a", 7)

    assert ("a", 7) in recent
    assert ("b", 7) not in recent
    assert recent.find("b", 7) is None


def test_a_cleared_store_holds_nothing() -> None:
    """After clear nothing is found, and there is room again."""
    recent = RecentFrames(SMALL.nbytes)
    put(recent, "a", 0)
    recent.clear()

    assert recent.find("a", 0) is None
    assert len(recent) == recent.nbytes == 0
    assert put(recent, "a", 1)
