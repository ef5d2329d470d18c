# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from robostream.plan import Cut, EpochPlan, digest, step_receipts
from tests.plan.spec import LENGTHS, SETTINGS, make_plan


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
