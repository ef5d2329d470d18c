# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import SelectionError
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    advance,
    digest,
    dropped_frames,
    frames_at,
    rank_lanes,
    step_positions,
    step_receipts,
    steps_left,
    walk,
)
from robostream.plan.sharding import chunk_positions
from tests.plan.spec import LENGTHS, SETTINGS, Pair, make_plan, pairs

WORLD_SIZES = st.integers(1, 9)
BATCH_SIZES = st.integers(1, 12)


def global_step(plan: EpochPlan, cut: Cut, position: int, step: int) -> list[list[Pair]]:
    """What each rank delivers in one step."""
    ranks = []
    for rank in range(cut.world_size):
        own = Cut(rank, cut.world_size, cut.batch_size, cut.drop_last)
        at = step_positions(own, plan.num_frames, position, step)
        episodes, frames = frames_at(plan, at)
        ranks.append(list(zip(episodes.tolist(), frames.tolist(), strict=True)))
    return ranks


def whole_epoch(plan: EpochPlan, cut: Cut) -> list[list[list[Pair]]]:
    """What each rank delivers in each step of an epoch."""
    steps = steps_left(cut, plan.num_frames, 0)
    return [global_step(plan, cut, 0, step) for step in range(steps)]


@given(lengths=LENGTHS, settings=SETTINGS, world_size=WORLD_SIZES, batch_size=BATCH_SIZES)
def test_ranks_share_the_epoch_exactly(
    lengths: list[int], settings: dict[str, Any], world_size: int, batch_size: int
) -> None:
    """P1: over all ranks every frame comes once, and the tail repeats the first few, in order."""
    plan = make_plan(lengths, settings)
    cut = Cut(0, world_size, batch_size, drop_last=False)
    batches = whole_epoch(plan, cut)
    delivered = sorted(pair for step in batches for rank in step for pair in rank)
    whole = pairs(plan, 0, plan.num_frames)
    repeats = -plan.num_frames % world_size
    filled = [whole[position % plan.num_frames] for position in range(repeats)]

    assert delivered == sorted(whole + filled)
    assert all(len({len(rank) for rank in step}) == 1 for step in batches)
    assert all(len(step[0]) == batch_size for step in batches[:-1])


@given(lengths=LENGTHS, settings=SETTINGS, world_size=WORLD_SIZES, batch_size=BATCH_SIZES)
def test_drop_last_leaves_out_the_tail(
    lengths: list[int], settings: dict[str, Any], world_size: int, batch_size: int
) -> None:
    """With drop_last all batches are full, and what is missing is the end of the order."""
    plan = make_plan(lengths, settings)
    cut = Cut(0, world_size, batch_size, drop_last=True)
    batches = whole_epoch(plan, cut)
    dropped = dropped_frames(cut, plan.num_frames, 0)
    delivered = sorted(pair for step in batches for rank in step for pair in rank)

    assert delivered == sorted(pairs(plan, 0, plan.num_frames - dropped))
    assert dropped < cut.step_size
    assert all(len(rank) == batch_size for step in batches for rank in step)


@given(
    lengths=LENGTHS,
    settings=SETTINGS,
    topologies=st.lists(st.tuples(WORLD_SIZES, BATCH_SIZES, st.integers(1, 4)), min_size=1),
)
def test_resuming_on_other_topologies_loses_and_repeats_nothing(
    lengths: list[int], settings: dict[str, Any], topologies: list[tuple[int, int, int]]
) -> None:
    """P4: saved at any step, resumed on any ranks and batch size, the order goes on."""
    plan = make_plan(lengths, settings)
    delivered: list[Pair] = []
    cursor = Cursor(settings["epoch"], 0)
    for world_size, batch_size, steps in topologies:
        cut = Cut(0, world_size, batch_size, drop_last=True)
        for step in range(min(steps, steps_left(cut, plan.num_frames, cursor.position))):
            ranks = global_step(plan, cut, cursor.position, step)
            delivered += [pair for rank in ranks for pair in rank]
        position = min(cursor.position + steps * cut.step_size, len(delivered))
        cursor = Cursor(cursor.epoch, position)

    assert sorted(delivered) == sorted(pairs(plan, 0, len(delivered)))
    array = np.array(delivered, dtype=np.int64).reshape(-1, 2)
    assert plan.receipt(cursor.position) == digest(array[:, 0], array[:, 1])


@given(
    lengths=LENGTHS,
    settings=SETTINGS,
    sizes=st.sampled_from([(1, 12, 4, 3), (2, 6, 3, 4), (12, 1, 1, 12), (2, 8, 16, 1)]),
    start=st.integers(0, 100),
)
def test_equal_global_batches_are_equal_sets(
    lengths: list[int], settings: dict[str, Any], sizes: tuple[int, int, int, int], start: int
) -> None:
    """P4: with W b = W' b' every global batch is the same set of frames, from any position on."""
    plan = make_plan(lengths, settings)
    first, second = Cut(0, *sizes[:2], drop_last=True), Cut(0, *sizes[2:], drop_last=True)
    position = min(start, plan.num_frames)
    for step in range(steps_left(first, plan.num_frames, position)):
        one = [pair for rank in global_step(plan, first, position, step) for pair in rank]
        two = [pair for rank in global_step(plan, second, position, step) for pair in rank]

        assert sorted(one) == sorted(two)


@given(
    num_frames=st.integers(1, 200),
    world_size=WORLD_SIZES,
    batch_size=BATCH_SIZES,
    drop_last=st.booleans(),
    jumps=st.lists(st.integers(0, 30), max_size=6),
)
def test_advancing_is_walking_epoch_after_epoch(
    num_frames: int, world_size: int, batch_size: int, drop_last: bool, jumps: list[int]
) -> None:
    """Epochs follow each other without a gap: jumps add up, and one step never skips any."""
    drop_last = drop_last and num_frames >= world_size * batch_size
    cut = Cut(0, world_size, batch_size, drop_last)
    walked = jumped = Cursor(0, 0)
    for jump in jumps:
        jumped = advance(cut, num_frames, jumped, jump)
        for _ in range(jump):
            walked = advance(cut, num_frames, walked, 1)

    assert walked == jumped == advance(cut, num_frames, Cursor(0, 0), sum(jumps))
    assert steps_left(cut, num_frames, walked.position) > 0


def test_the_end_of_an_epoch_is_the_start_of_the_next() -> None:
    """A cursor at the end, or in a tail that is dropped, moves on."""
    cut = Cut(0, 2, 4, drop_last=True)

    assert advance(cut, 20, Cursor(3, 20), 0) == Cursor(4, 0)
    assert advance(cut, 20, Cursor(3, 16), 0) == Cursor(4, 0)
    assert advance(cut, 20, Cursor(3, 8), 1) == Cursor(4, 0)


def test_an_epoch_without_a_full_batch_is_refused() -> None:
    """A run that would never deliver anything says so instead of hanging."""
    with pytest.raises(SelectionError, match="nothing would ever be delivered"):
        advance(Cut(0, 4, 8, drop_last=True), 31, Cursor(0, 0), 1)


def test_a_rank_touches_the_lanes_of_its_residue() -> None:
    """Whole lanes when the world size divides their number, else those of the common divisor."""
    assert list(rank_lanes(Cut(1, 4, 1, True), 8)) == [1, 5]
    assert list(rank_lanes(Cut(5, 6, 1, True), 8)) == [1, 3, 5, 7]
    assert list(rank_lanes(Cut(2, 5, 1, True), 8)) == list(range(8))


@pytest.mark.parametrize("values", [(2, 2, 1), (-1, 2, 1), (0, 0, 1), (0, 1, 0)])
def test_impossible_cuts_are_refused(values: tuple[int, int, int]) -> None:
    """A rank is below the world size and a batch has a sample."""
    with pytest.raises(ValueError, match="want 0 <= rank < world_size"):
        Cut(*values, drop_last=False)


@given(
    lengths=LENGTHS,
    settings=SETTINGS,
    cut=st.builds(
        lambda w, r, b, d: Cut(r % w, w, b, d),
        st.integers(1, 7),
        st.integers(0, 6),
        st.integers(1, 9),
        st.booleans(),
    ),
    start=st.integers(0, 60),
    every=st.integers(1, 4),
)
def test_walking_delivers_the_steps_one_by_one(
    lengths: list[int], settings: dict[str, Any], cut: Cut, start: int, every: int
) -> None:
    """For any rank, a walk over all steps or every n-th gives what each step alone would give."""
    plan = make_plan(lengths, settings)
    position = min(start, plan.num_frames)
    steps = range(every - 1, steps_left(cut, plan.num_frames, position), every)
    batches = list(walk(plan, cut, position, steps))

    assert [batch.step for batch in batches] == list(steps)
    for batch in batches:
        at = step_positions(cut, plan.num_frames, position, batch.step)
        episodes, frames = frames_at(plan, at)
        assert batch.positions == at
        assert batch.episodes.tolist() == episodes.tolist()
        assert batch.frames.tolist() == frames.tolist()


@pytest.mark.parametrize("world_size", [1, 3, 4])
def test_chunks_join_without_a_seam(world_size: int) -> None:
    """A walk of many chunks is the order itself."""
    plan = EpochPlan([100] * 400, seed=1, epoch=0, lanes=4, pool_size=8)
    cut = Cut(0, world_size, 32, drop_last=False)
    batches = list(walk(plan, cut, 0, range(steps_left(cut, plan.num_frames, 0))))
    walked = [frame for batch in batches for frame in batch.frames.tolist()]

    assert chunk_positions(plan) < plan.num_frames
    assert walked[: -(-40_000 // world_size)] == plan.slice(0, 40_000, world_size)[1].tolist()


@given(
    lengths=LENGTHS,
    settings=SETTINGS,
    step_size=st.integers(1, 40),
    start=st.integers(0, 60),
    drop_last=st.booleans(),
)
def test_each_step_has_its_digest_and_receipt(
    lengths: list[int], settings: dict[str, Any], step_size: int, start: int, drop_last: bool
) -> None:
    """A digest is that of the step's frames, a receipt that of the epoch up to there."""
    plan = make_plan(lengths, settings)
    start = min(start, plan.num_frames)
    ledger = list(step_receipts(plan, Cut(0, 1, step_size, drop_last), start))
    bounds = [start, *(line.stop for line in ledger)]

    assert [line.digest for line in ledger] == [
        digest(*plan.slice(a, b)) for a, b in itertools.pairwise(bounds)
    ]
    assert [line.receipt for line in ledger] == [plan.receipt(stop) for stop in bounds[1:]]
    assert all(line.stop == start + (line.step + 1) * step_size for line in ledger[:-1])


def test_the_ledger_does_not_depend_on_the_ranks() -> None:
    """With the same global batch, any number of ranks has the same receipts."""
    plan = EpochPlan([50] * 300, seed=1, epoch=3, lanes=6, pool_size=9)
    ledgers = [
        list(step_receipts(plan, Cut(0, world_size, 24 // world_size, drop_last=False), 100))
        for world_size in (1, 3, 24)
    ]

    assert ledgers[0] == ledgers[1] == ledgers[2]
    assert ledgers[0][-1].stop == plan.num_frames
