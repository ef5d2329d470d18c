# SPDX-License-Identifier: Apache-2.0
"""Tours of all kinds: plans, ranks, batch sizes, tails, starts and quarantines."""

from __future__ import annotations

from hypothesis import strategies as st

from robostream.plan import Cut, EpochPlan, Schedule, rank_lanes


@st.composite
def tours(draw: st.DrawFn, *, max_frames: int = 60, quarantine: bool = True) -> Schedule:
    """Return a tour of a small epoch."""
    lengths = draw(st.lists(st.integers(1, max_frames), min_size=1, max_size=8))
    bad = st.sets(st.integers(0, len(lengths) - 1), max_size=len(lengths) - 1)
    plan = EpochPlan(
        lengths,
        seed=draw(st.integers(0, 9)),
        epoch=draw(st.integers(0, 2)),
        lanes=draw(st.integers(1, 6)),
        pool_size=draw(st.integers(1, 6)),
        shuffle=draw(st.booleans()),
        quarantined=draw(bad) if quarantine else (),
    )
    world_size = draw(st.integers(1, 3))
    cut = Cut(
        rank=draw(st.integers(0, world_size - 1)),
        world_size=world_size,
        batch_size=draw(st.integers(1, 7)),
        drop_last=draw(st.booleans()),
    )
    return Schedule(plan, cut, draw(st.integers(0, plan.num_frames - 1)))


def lanes_of(tour: Schedule) -> list[int]:
    """Return the rank's lanes that have frames."""
    lanes = rank_lanes(tour.cut, tour.plan.lanes)
    return [number for number in lanes if number < tour.plan.num_frames]
