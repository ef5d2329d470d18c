# SPDX-License-Identifier: Apache-2.0
"""Orders, receipts, states and rows are those of commit 2946d05, and its states resume here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from tests.fixture_datasets import FIXTURES, NAMES
from tests.golden.record import PLANS, STREAMS, record_items, record_plan, record_stream

GOLDEN: dict[str, Any] = json.loads(Path(__file__).with_name("golden.json").read_text())


@pytest.mark.parametrize("name", PLANS)
def test_orders_and_receipts_stay(name: str) -> None:
    """A plan gives the order and the receipts it always gave."""
    assert record_plan(PLANS[name]) == GOLDEN["plans"][name]


@pytest.mark.parametrize("options", STREAMS)
@pytest.mark.parametrize("fixture", NAMES)
def test_batches_and_states_stay(fixture: str, options: str) -> None:
    """Rows, windows and pads of two epochs, and the state after each batch, are what they were.

    Equal states also resume on the earlier version.
    """
    assert record_stream(fixture, STREAMS[options]) == GOLDEN["streams"][f"{fixture}/{options}"]


@pytest.mark.parametrize("fixture", NAMES)
def test_items_stay(fixture: str) -> None:
    """Map-style items have the rows they had."""
    assert record_items(fixture) == GOLDEN["items"][fixture]


@pytest.mark.parametrize("fixture", NAMES)
def test_earlier_states_resume(fixture: str) -> None:
    """A loader goes on from a state that the earlier version saved."""
    for state in GOLDEN["streams"][f"{fixture}/seeded"]["states"]:
        stream = StreamingLeRobotDataset(
            "some/name", root=FIXTURES / fixture, camera_keys=[], **STREAMS["seeded"]
        )
        loader = StreamingDataLoader(stream, 5, num_workers=0)
        loader.load_state_dict(state)
        plan = stream.plan(state["epoch"])
        left = [int(i) for i in plan.slice(state["position"], plan.num_frames)[1]]

        assert [i for batch in loader for i in batch["frame_index"].tolist()] == left or not left
