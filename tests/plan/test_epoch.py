# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import EpochPlan, digest
from tests.plan.spec import LENGTHS, SETTINGS, epoch_order, make_plan, pairs


@given(lengths=LENGTHS, settings=SETTINGS)
def test_the_order_is_the_one_defined(lengths: list[int], settings: dict[str, Any]) -> None:
    """P2: the order is a function of the lengths and the settings, written down in spec.py."""
    plan = make_plan(lengths, settings)

    assert pairs(plan, 0, plan.num_frames) == epoch_order(lengths, **settings)


@given(lengths=LENGTHS, settings=SETTINGS)
def test_every_frame_comes_exactly_once(lengths: list[int], settings: dict[str, Any]) -> None:
    """P1: an epoch is a permutation of the selected frames."""
    plan = make_plan(lengths, settings)
    everything = [(e, f) for e, length in enumerate(lengths) for f in range(length)]

    assert sorted(pairs(plan, 0, plan.num_frames)) == everything


@given(lengths=LENGTHS, settings=SETTINGS, data=st.data())
def test_any_slice_equals_that_part_of_the_whole(
    lengths: list[int], settings: dict[str, Any], data: st.DataObject
) -> None:
    """P3: a slice with any start, stop and step needs nothing but itself."""
    plan = make_plan(lengths, settings)
    start = data.draw(st.integers(0, plan.num_frames))
    stop = data.draw(st.integers(start, plan.num_frames))
    step = data.draw(st.integers(1, 12))

    assert pairs(plan, start, stop, step) == pairs(plan, 0, plan.num_frames)[start:stop:step]


def test_a_large_epoch_keeps_the_same_promises() -> None:
    """P1 and P3 at a size where windows and lanes are what they are in training."""
    lengths = [100 + 17 * e % 400 for e in range(700)]
    plan = EpochPlan(lengths, seed=4, epoch=1, lanes=24, pool_size=64)
    episodes, frames = plan.slice(0, plan.num_frames)
    counts = np.zeros((700, 500), dtype=int)
    np.add.at(counts, (episodes, frames), 1)

    assert counts.max() == 1
    assert counts.sum(axis=1).tolist() == lengths
    for start in (0, 1, plan.num_frames // 3, plan.num_frames - 777):
        for step in (1, 3, 7, 24):
            part = plan.slice(start, start + 777, step)
            assert np.array_equal(part[0], episodes[start : start + 777 : step])
            assert np.array_equal(part[1], frames[start : start + 777 : step])


def test_the_golden_order() -> None:
    """One order, pinned: if this fails, every state saved so far has lost its meaning."""
    plan = EpochPlan([3, 5, 2, 4, 6], seed=7, epoch=1, lanes=5, pool_size=3)

    # fmt: off
    assert pairs(plan, 0, 20) == [
        (3, 3), (0, 2), (4, 3), (1, 3), (4, 4), (3, 0), (1, 0), (4, 0), (1, 4), (2, 1),
        (3, 2), (0, 1), (4, 2), (1, 1), (4, 5), (3, 1), (0, 0), (4, 1), (1, 2), (2, 0),
    ]
    # fmt: on
    assert plan.receipt(10) == 0xC18D8C227336FD10
    assert plan.selection == "669b496009f6da28"


def test_epochs_and_seeds_differ() -> None:
    """Another epoch or seed is another order of the same frames; other arguments change nothing."""
    lengths = [30] * 40
    plan = EpochPlan(lengths, seed=1, epoch=0, lanes=4, pool_size=8)
    orders = {
        tuple(pairs(other, 0, 1200))
        for other in (
            plan,
            plan.replace(epoch=1),
            EpochPlan(lengths, seed=2, epoch=0, lanes=4, pool_size=8),
            EpochPlan(lengths, seed=1, epoch=0, lanes=5, pool_size=8),
            EpochPlan(lengths, seed=1, epoch=0, lanes=4, pool_size=9),
        )
    }

    assert len(orders) == 5
    assert pairs(plan.replace(epoch=1).replace(epoch=0), 0, 1200) == pairs(plan, 0, 1200)


@given(lengths=LENGTHS, settings=SETTINGS)
def test_positions_undo_slices(lengths: list[int], settings: dict[str, Any]) -> None:
    """The exact position of a frame is where a slice finds it."""
    plan = make_plan(lengths, settings)
    order = pairs(plan, 0, plan.num_frames)
    found = [
        (int(episode), frame, order[position])
        for episode in plan.line.ids
        for frame, position in enumerate(plan.positions(int(episode)).tolist())
    ]

    assert all((episode, frame) == pair for episode, frame, pair in found)


@given(lengths=LENGTHS, settings=SETTINGS, data=st.data())
def test_a_receipt_is_the_digest_of_what_came_before(
    lengths: list[int], settings: dict[str, Any], data: st.DataObject
) -> None:
    """The closed form equals the plain sum over the pairs, at any position."""
    plan = make_plan(lengths, settings)
    position = data.draw(st.integers(0, plan.num_frames))

    plan.receipt(plan.num_frames)  # so that the next one is not counted from 0
    assert plan.receipt(position) == digest(*plan.slice(0, position))


@given(lengths=LENGTHS, settings=SETTINGS, data=st.data())
def test_receipts_in_any_order(
    lengths: list[int], settings: dict[str, Any], data: st.DataObject
) -> None:
    """One does not depend on which were asked for before."""
    plan = make_plan(lengths, settings)
    for position in data.draw(st.lists(st.integers(0, plan.num_frames), max_size=6)):
        assert plan.receipt(position) == digest(*plan.slice(0, position))


def test_a_whole_epoch_has_the_same_receipt_in_any_order() -> None:
    """Exactly once means: whatever the order, the digests add up to those of the dataset."""
    lengths = [7, 9, 30, 2]
    receipts = {
        EpochPlan(lengths, seed=seed, epoch=epoch, lanes=lanes, pool_size=pool).receipt(48)
        for seed, epoch, lanes, pool in [(0, 0, 1, 1), (3, 9, 5, 2), (8, 1, 60, 64)]
    }

    assert len(receipts) == 1


@given(lengths=LENGTHS, lanes=st.integers(1, 6))
def test_unshuffled_lanes_are_contiguous_shares(lengths: list[int], lanes: int) -> None:
    """Without shuffle, lane l is a stretch of the dataset; one lane is the dataset."""
    plan = EpochPlan(lengths, seed=5, epoch=2, lanes=lanes, pool_size=9, shuffle=False)
    shares = [pairs(plan, lane, plan.num_frames, lanes) for lane in range(min(lanes, sum(lengths)))]
    dataset = [(e, f) for e, length in enumerate(lengths) for f in range(length)]

    assert [pair for share in shares for pair in share] == dataset


@given(lengths=LENGTHS, settings=SETTINGS, shift=st.integers(0, 50))
def test_ids_name_the_episodes_of_a_selection(
    lengths: list[int], settings: dict[str, Any], shift: int
) -> None:
    """A selection is ordered under the ids its episodes have in the dataset."""
    ids = [3 * index + shift for index in range(len(lengths))]
    plan = EpochPlan(lengths, episodes=ids, **settings)
    expected = [(e, f) for e, length in zip(ids, lengths, strict=True) for f in range(length)]

    assert sorted(pairs(plan, 0, plan.num_frames)) == expected


@given(lengths=LENGTHS, settings=SETTINGS, data=st.data())
def test_a_step_of_a_divisor_touches_its_own_lanes_only(
    lengths: list[int], settings: dict[str, Any], data: st.DataObject
) -> None:
    """With W dividing the lanes, rank r sees only frames of every W-th lane."""
    plan = make_plan(lengths, settings)
    world_size = data.draw(st.sampled_from([w for w in range(1, 10) if plan.lanes % w == 0]))
    rank = data.draw(st.integers(0, min(world_size, plan.num_frames) - 1))
    episodes, frames = plan.slice(rank, plan.num_frames, world_size)

    at = {episode: plan.positions(episode) for episode in set(episodes.tolist())}
    lanes = {int(at[e][f]) % plan.lanes for e, f in zip(episodes.tolist(), frames, strict=True)}

    assert all(lane % world_size == rank for lane in lanes)


def test_the_window_is_the_pool_shared_by_the_lanes() -> None:
    """The window is a lane's share of the pool in mean episodes, and never more than the lane."""
    lengths = [100, 200, 300, 400]

    assert EpochPlan(lengths, seed=0, epoch=0, lanes=2, pool_size=1).window == 125
    assert EpochPlan(lengths, seed=0, epoch=0, lanes=3, pool_size=99).window == 334
    assert EpochPlan(lengths, seed=0, epoch=0, lanes=9, pool_size=9, shuffle=False).window == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lanes": 0}, "lanes >= 1"),
        ({"pool_size": 0}, "pool_size >= 1"),
        ({"epoch": -1}, "epoch >= 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, int], message: str) -> None:
    """The error says what was wanted and what was given."""
    with pytest.raises(ValueError, match=message):
        EpochPlan([5], **({"seed": 0, "epoch": 0, "lanes": 1, "pool_size": 1} | settings))


@pytest.mark.parametrize("bounds", [(0, 6, 1), (-1, 3, 1), (4, 3, 1), (0, 3, 0)])
def test_slices_out_of_bounds_are_refused(bounds: tuple[int, int, int]) -> None:
    """A slice beyond the epoch is a mistake, not a short answer."""
    plan = EpochPlan([5], seed=0, epoch=0, lanes=1, pool_size=1)

    with pytest.raises(ValueError, match="want 0 <= start <= stop <= 5"):
        plan.slice(*bounds)


def test_receipts_out_of_bounds_are_refused() -> None:
    """There is no receipt beyond the epoch."""
    with pytest.raises(ValueError, match="want a position in"):
        EpochPlan([5], seed=0, epoch=0, lanes=1, pool_size=1).receipt(6)
