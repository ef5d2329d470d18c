# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import SelectionError
from robostream.plan import EpochPlan, digest
from tests.plan.spec import LENGTHS, SETTINGS, make_plan, pairs


@st.composite
def quarantined_plans(draw: st.DrawFn) -> tuple[EpochPlan, EpochPlan]:
    """Return a plan, and the same with some episodes, but not all, in quarantine."""
    lengths = draw(LENGTHS.filter(lambda values: sum(map(bool, values)) >= 2))
    settings: dict[str, Any] = draw(SETTINGS)
    plan = make_plan(lengths, settings)
    ids = plan.line.ids.tolist()
    bad = draw(st.sets(st.sampled_from(ids), min_size=1, max_size=len(ids) - 1))
    return plan, plan.replace(quarantined=bad)


@given(plans=quarantined_plans())
def test_healthy_frames_keep_their_positions(plans: tuple[EpochPlan, EpochPlan]) -> None:
    """Only the places of quarantined episodes change, and they show healthy frames."""
    plan, without = plans
    before, after = pairs(plan, 0, plan.num_frames), pairs(without, 0, without.num_frames)
    healthy = {pair for pair in before if pair[0] not in without.quarantined}

    assert all(new == old for old, new in zip(before, after, strict=True) if old in healthy)
    assert set(after) == healthy


@given(plans=quarantined_plans(), data=st.data())
def test_stand_ins_depend_on_the_position_alone(
    plans: tuple[EpochPlan, EpochPlan], data: st.DataObject
) -> None:
    """Whatever slice a rank looks at, the same frame stands in."""
    plan = plans[1]
    start = data.draw(st.integers(0, plan.num_frames))
    step = data.draw(st.integers(1, 5))

    assert pairs(plan, start, plan.num_frames, step) == pairs(plan, 0, plan.num_frames)[start::step]


@given(plans=quarantined_plans(), data=st.data())
def test_receipts_count_the_stand_ins(
    plans: tuple[EpochPlan, EpochPlan], data: st.DataObject
) -> None:
    """Runs with the same list of quarantined episodes have the same receipts."""
    plan = plans[1]
    position = data.draw(st.integers(0, plan.num_frames))

    plan.receipt(plan.num_frames)  # so that the next one is not counted from 0
    assert plan.receipt(position) == digest(*plan.slice(0, position))


def test_stand_ins_are_many_and_from_near_by() -> None:
    """They come from the neighbours of the bad episode on the line, not all from one frame."""
    plan = EpochPlan([100] * 50, seed=0, epoch=0, lanes=2, pool_size=8)
    bad = int(plan.line.segments.episodes[20])
    without = plan.replace(quarantined=[bad])
    positions = plan.positions(bad)
    found = [pairs(without, p, p + 1)[0] for p in positions.tolist()]
    near = set(plan.line.segments.episodes[17:24].tolist()) - {bad}

    assert {episode for episode, _ in found} <= near
    assert len(set(found)) > 60


def test_nothing_left_is_an_error() -> None:
    """With every episode in quarantine there is nothing to deliver."""
    with pytest.raises(SelectionError, match="all 2 episodes"):
        EpochPlan([3, 4], seed=0, epoch=0, lanes=1, pool_size=1, quarantined=[0, 1])


def test_an_unknown_episode_cannot_be_quarantined() -> None:
    """A list of another selection is refused."""
    plan = EpochPlan([3, 4], seed=0, epoch=0, lanes=1, pool_size=1, quarantined=[7])

    with pytest.raises(SelectionError, match="episode 7"):
        plan.slice(0, 1)
