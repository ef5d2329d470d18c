# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from robostream.storage.cache_quota import (
    EXTENT_BLOCKS,
    Extents,
    blocks_of,
    choose_evictions,
    rank_blocks,
)

BLOCK = 4096


@st.composite
def files(draw: st.DrawFn) -> Extents:
    count = draw(st.integers(0, 70))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    held = (rng.random(count) < draw(st.floats(0, 1))) * np.int64(BLOCK)
    wanted = rng.random(count) < draw(st.sampled_from([0.0, 0.1, 1.0]))
    dues = rng.integers(0, 5, count) + np.where(rng.random(count) < 0.1, np.inf, 0.0)
    return rank_blocks(held, wanted, dues, rng.integers(0, 5, count).astype(np.uint32))


@given(st.lists(files(), max_size=5), st.integers(0, 400 * BLOCK))
def test_what_goes_is_enough_and_worth_the_least(held: list[Extents], needed: int) -> None:
    """Evictions free enough or everything, no extent too many, the least valuable first."""
    gone, stays = [], []
    for file, flags in zip(held, choose_evictions(held, needed), strict=True):
        for place, nbytes in enumerate(file.nbytes.tolist()):
            rank = (bool(file.wanted[place]), float(file.worths[place]))
            (gone if flags[place] else stays).append((rank, nbytes))
    freed = sum(nbytes for _, nbytes in gone)
    total = sum(int(file.nbytes.sum()) for file in held)

    assert all(nbytes > 0 for _, nbytes in gone)
    assert freed >= min(needed, total)
    if gone:
        worst = max(gone)
        assert freed - max(nbytes for _, nbytes in gone) < needed
        assert all(rank >= worst[0] for rank, nbytes in stays if nbytes)


def test_an_extent_is_worth_as_much_as_its_best_block() -> None:
    """Unwanted extents rank by last use, wanted ones by their first next use; holes are ignored."""
    count = 2 * EXTENT_BLOCKS + 1
    held = np.full(count, BLOCK, np.int64)
    held[1] = 0
    wanted = np.zeros(count, bool)
    wanted[[1, EXTENT_BLOCKS, EXTENT_BLOCKS + 1]] = True
    dues = np.arange(count, dtype=np.float64)
    uses = np.arange(count, dtype=np.uint32)
    extents = rank_blocks(held, wanted, dues, uses)

    assert extents.nbytes.tolist() == [15 * BLOCK, 16 * BLOCK, BLOCK]
    assert extents.wanted.tolist() == [False, True, False]
    assert extents.worths.tolist() == [EXTENT_BLOCKS - 1, -EXTENT_BLOCKS, count - 1]


def test_the_blocks_of_extents_are_those_that_are_there() -> None:
    """Holes inside an extent are not dropped again; the last extent may be short."""
    held = np.ones(EXTENT_BLOCKS + 3, bool)
    held[2] = False

    assert blocks_of(np.array([True, False]), held) == [range(2), range(3, EXTENT_BLOCKS)]
    assert blocks_of(np.array([False, True]), held) == [range(EXTENT_BLOCKS, EXTENT_BLOCKS + 3)]
