# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode.arena import Arena

SIZES = (4_096, 98_304, 700_032, 5_000_000)
STEPS = st.lists(
    st.tuples(st.sampled_from(["take", "give"]), st.sampled_from(SIZES), st.integers(0, 99)),
    max_size=80,
)


@given(steps=STEPS, budget=st.integers(0, 20_000_000))
def test_slots_never_overlap_nor_exceed_the_budget(
    steps: list[tuple[str, int, int]], budget: int
) -> None:
    """Whatever is taken and given back, slots in use are disjoint and within the budget."""
    arena = Arena(budget, None)
    taken: dict[int, int] = {}
    for action, nbytes, pick in steps:
        if action == "take":
            available = arena.available(nbytes)
            slot = arena.take(nbytes)
            assert (slot is None) == (available == 0)
            if slot is not None:
                assert slot not in taken
                taken[slot] = nbytes
        elif taken:
            slot = sorted(taken)[pick % len(taken)]
            del taken[slot]
            arena.give(slot)
    for number, slot in enumerate(sorted(taken)):
        arena.memory(slot).content[:] = number % 251

    assert sum(taken.values()) <= budget
    for number, slot in enumerate(sorted(taken)):
        assert arena.memory(slot).content.nbytes == arena.slot_bytes(slot) == taken[slot]
        assert np.all(arena.memory(slot).content == number % 251)
        assert arena.memory(slot).address == arena.memory(slot).content.ctypes.data


def test_a_slot_given_back_is_the_next_taken() -> None:
    """Memory just used is used again before fresh memory is touched."""
    arena = Arena(10_000_000, None)
    slots = [arena.take(4096) for _ in range(10)]
    assert slots[3] is not None
    arena.give(slots[3])

    assert arena.take(4096) == slots[3]


def test_a_block_can_be_cut_anew() -> None:
    """Slots of another size get room once a whole block of the first is given back."""
    arena = Arena(4 << 20, None)
    slots = []
    while (slot := arena.take(1 << 20)) is not None:
        slots.append(slot)
    assert arena.take(2 << 20) is None
    block = arena.slots_in_the_way(2 << 20)
    assert list(block) == sorted(slots)
    assert arena.num_taken(block) == 4
    for slot in slots:
        arena.give(slot)
    arena.recut(block, 2 << 20)

    assert arena.available(2 << 20) == 2
    assert arena.available(1 << 20) == 0
    assert arena.take(2 << 20) is not None


def test_memory_on_disk_is_nameless_and_reserved(tmp_path: Path) -> None:
    """The file has no name and its space is taken at once, so that no later write can fail."""
    arena = Arena(1 << 20, tmp_path)
    slot = arena.take(4096)
    assert slot is not None
    arena.memory(slot).content[:] = 7

    assert list(tmp_path.iterdir()) == []
    assert np.all(arena.memory(slot).content == 7)
    with pytest.raises(OSError, match=r"No space left|File too large"):
        Arena(1 << 50, tmp_path)
