# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import BufferPool
from robostream.decode.frames import allocate

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
    arena = BufferPool(budget)
    taken: dict[int, int] = {}
    for action, nbytes, pick in steps:
        if action == "take":
            slot = arena.take(nbytes)
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


@given(
    budget=st.integers(0, 20_000_000),
    taken=st.lists(st.sampled_from(SIZES), min_size=1, max_size=9),
    count=st.integers(0, 200),
)
def test_room_is_what_can_be_taken(budget: int, taken: list[int], count: int) -> None:
    """So many slots of the largest size can be taken, and no more."""
    pool = BufferPool(budget)
    used = [nbytes for nbytes in taken if pool.take(nbytes) is not None]
    largest = max(used, default=0)
    has_room = pool.has_room(count)

    assert has_room == (bool(used) and all(pool.take(largest) is not None for _ in range(count)))


def test_a_slot_given_back_is_the_next_taken() -> None:
    """Memory just used is used again before fresh memory is touched."""
    arena = BufferPool(10_000_000)
    slots = [arena.take(4096) for _ in range(10)]
    assert slots[3] is not None
    arena.give(slots[3])

    assert arena.take(4096) == slots[3]


def test_a_block_can_be_cut_anew() -> None:
    """Slots of another size get room once a whole block of the first is given back."""
    arena = BufferPool(4 << 20)
    slots = []
    while (slot := arena.take(1 << 20)) is not None:
        slots.append(slot)
    assert arena.take(2 << 20) is None
    block = arena.slots_in_the_way(2 << 20)
    assert list(block) == sorted(slots)
    for slot in slots:
        arena.give(slot)
    arena.recut(block, 2 << 20)

    assert arena.take(1 << 20) is None
    assert {arena.take(2 << 20), arena.take(2 << 20)} <= set(slots)
    assert arena.take(2 << 20) is None


def take_all(arena: BufferPool, nbytes: int) -> list[int]:
    """Take slots of one size until there is none."""
    taken = []
    while (slot := arena.take(nbytes)) is not None:
        taken.append(slot)
    return taken


def test_numbers_of_slots_are_used_again() -> None:
    """However often blocks are cut anew, there are as many numbers as slots at a time."""
    arena = BufferPool(4 << 20)
    for round_number in range(50):
        nbytes = 64 << 10 if round_number % 2 else 96 << 10
        block = arena.slots_in_the_way(nbytes)
        if block:
            arena.recut(block, nbytes)
        taken = take_all(arena, nbytes)
        assert len(taken) == len(set(taken)) == (4 << 20) // nbytes
        for slot in taken:
            assert arena.memory(slot).content.nbytes == nbytes
            arena.give(slot)

    assert arena.num_slots == 64


def test_memory_is_where_vector_instructions_like_it() -> None:
    """A picture's own memory begins at a multiple of 64 and says where."""
    for nbytes in (1, 64, 98_304):
        memory = allocate(nbytes)

        assert memory.content.nbytes == nbytes
        assert memory.address == memory.content.ctypes.data
        assert memory.address % 64 == 0
