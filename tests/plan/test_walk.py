# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import (
    Cut,
    EpochPlan,
    chunk_positions,
    frames_at,
    step_positions,
    steps_left,
    walk,
)
from tests.plan.spec import LENGTHS, SETTINGS, make_plan


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
