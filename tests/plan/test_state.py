# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import StateError
from robostream.plan import (
    Cursor,
    Cut,
    EpochPlan,
    capture_state,
    check_state,
    cursor_from_batches,
    digest,
    frames_at,
    parse_state,
    step_positions,
)
from tests.plan.spec import LENGTHS, SETTINGS, make_plan

LENGTHS_HERE = [10, 20, 30, 15]
SETTINGS_HERE = {"seed": 3, "epoch": 2, "lanes": 4, "pool_size": 2, "shuffle": True}


def state_here() -> dict[str, Any]:
    return capture_state(make_plan(LENGTHS_HERE, SETTINGS_HERE), 42, fingerprint="abc").to_dict()


@given(lengths=LENGTHS, settings=SETTINGS, data=st.data())
def test_a_state_survives_json(
    lengths: list[int], settings: dict[str, Any], data: st.DataObject
) -> None:
    """Saved, written, read and loaded, a state says where the run stood."""
    plan = make_plan(lengths, settings)
    position = data.draw(st.integers(0, plan.num_frames))
    state = capture_state(plan, position, fingerprint="abc")
    loaded = parse_state(json.loads(json.dumps(state.to_dict())))
    check_state(loaded, plan.replace(epoch=settings["epoch"] + 1), fingerprint="abc")

    assert loaded == state
    assert loaded.cursor == Cursor(settings["epoch"], position)


def test_the_state_is_a_few_plain_values() -> None:
    """The form of version 1, pinned."""
    assert state_here() == {
        "version": 1,
        "fingerprint": "abc",
        "selection": make_plan(LENGTHS_HERE, SETTINGS_HERE).selection,
        "num_frames": 75,
        "seed": 3,
        "lanes": 4,
        "pool_size": 2,
        "shuffle": True,
        "quarantined": [],
        "epoch": 2,
        "position": 42,
        "receipt": state_here()["receipt"],
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fingerprint": "xyz"}, r"dataset \(fingerprint\): xyz in the state, abc here"),
        ({"seed": 4}, r"seed \(seed\): 4 in the state, 3 here"),
        ({"lanes": 8}, r"number of lanes \(lanes\): 8 in the state, 4 here"),
        ({"pool_size": 9}, r"pool size"),
        ({"shuffle": False}, r"shuffle setting"),
        ({"selection": "0", "num_frames": 74}, r"selection.*; number of frames"),
        ({"position": 76}, "which is not in an epoch of 75 frames"),
        ({"epoch": -1}, "want epoch and position of 0 or more"),
        ({"receipt": "0" * 16}, "the settings are those of the state, but the order is not"),
    ],
)
def test_a_state_of_another_order_is_refused(change: dict[str, Any], message: str) -> None:
    """The error names what differs, both values, and what to do."""
    plan = make_plan(LENGTHS_HERE, SETTINGS_HERE)

    with pytest.raises(StateError, match=message):
        check_state(parse_state(state_here() | change), plan, fingerprint="abc")


def test_another_selection_is_refused() -> None:
    """Episodes of the same lengths are still other episodes."""
    other = EpochPlan(LENGTHS_HERE, episodes=[0, 1, 2, 4], **SETTINGS_HERE)

    with pytest.raises(StateError, match="selection of episodes"):
        check_state(parse_state(state_here()), other, fingerprint="abc")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "want a state of version 1 or 2, got version 3"),
        ({"version": 2}, "missing .*since"),
        ({"version": None}, "got version None"),
        ({"position": "42"}, "position should be of type int, but is '42'"),
        ({"position": True}, "position should be of type int"),
        ({"quarantined": ["a"]}, "quarantined should be episode ids"),
        ({"surprise": 1}, r"unknown \['surprise'\]"),
    ],
)
def test_what_is_no_state_is_refused(change: dict[str, Any], message: str) -> None:
    """An unknown version, a wrong type or an extra key is named."""
    with pytest.raises(StateError, match=message):
        parse_state(state_here() | change)


def test_a_missing_key_is_named() -> None:
    """A state with missing keys is refused."""
    values = state_here()
    del values["lanes"]

    with pytest.raises(StateError, match=r"missing \['lanes'\]"):
        parse_state(values)


@given(
    lengths=LENGTHS,
    settings=SETTINGS,
    world_size=st.integers(1, 4),
    batch_size=st.integers(1, 5),
    batches=st.integers(0, 60),
)
def test_batches_consumed_say_where_a_run_stands(
    lengths: list[int], settings: dict[str, Any], world_size: int, batch_size: int, batches: int
) -> None:
    """LeRobot's form of a state leads to the position after that many batches on every rank."""
    plan = make_plan(lengths, settings).replace(epoch=0)
    cut = Cut(0, world_size, batch_size=99, drop_last=False)
    values = {"batches_consumed": batches, "batch_size": batch_size}
    cursor = cursor_from_batches(values, cut, plan.num_frames)
    per_epoch = -(-plan.num_frames // (world_size * batch_size))

    assert cursor.epoch == batches // per_epoch
    assert cursor.position == batches % per_epoch * world_size * batch_size


@pytest.mark.parametrize(
    "values",
    [
        {"batch_size": 4},
        {"batches_consumed": -1, "batch_size": 4},
        {"batches_consumed": 1.5, "batch_size": 4},
        {"batches_consumed": 1, "batch_size": 0},
    ],
)
def test_half_a_reference_state_is_refused(values: dict[str, Any]) -> None:
    """Both numbers are needed, and they must be possible."""
    with pytest.raises(StateError, match="batches_consumed"):
        cursor_from_batches(values, Cut(0, 1, 4, drop_last=False), 100)


def test_ranks_add_up_to_the_receipt() -> None:
    """What the ranks delivered proves the state: their digests add up to its receipt."""
    plan = make_plan(LENGTHS_HERE, SETTINGS_HERE)
    total = 0
    for rank in range(3):
        for step in range(4):
            at = step_positions(Cut(rank, 3, 4, drop_last=True), plan.num_frames, 0, step)
            total += digest(*frames_at(plan, at))

    assert capture_state(plan, 48, fingerprint="").receipt == f"{total % 2**64:016x}"
