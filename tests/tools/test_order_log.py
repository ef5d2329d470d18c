# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from robostream.errors import StateError
from robostream.plan import Cut, EpochPlan, capture_state, digest, step_receipts
from robostream.tools import compare_order_logs, logged_digest, write_order_log


def write_log(path: Path, *, seed: int = 1, step_size: int = 50, position: int = 0) -> Path:
    plan = EpochPlan([30] * 100, seed=seed, epoch=2, lanes=4, pool_size=9)
    with path.open("w") as file:
        receipts = step_receipts(plan, Cut(0, 1, step_size, drop_last=False), position)
        write_order_log(file, capture_state(plan, 0, fingerprint="f"), receipts)
    return path


def test_equal_orders_agree(tmp_path: Path) -> None:
    """The same plan logged twice agrees at every step."""
    first, second = write_log(tmp_path / "a"), write_log(tmp_path / "b")
    comparison = compare_order_logs(first, second)

    assert comparison.fork is None
    assert comparison.settings == []
    assert (comparison.compared, comparison.agreed) == (60, (2, 3000))


def test_the_first_step_that_differs_is_named(tmp_path: Path) -> None:
    """One exchanged frame in step 17 is found there, not earlier."""
    first, second = write_log(tmp_path / "a"), write_log(tmp_path / "b")
    lines = second.read_text().splitlines()
    for number in range(1 + 17, len(lines)):
        lines[number] = json.dumps(json.loads(lines[number]) | {"receipt": f"{number:016x}"})
    second.write_text("\n".join(lines))
    comparison = compare_order_logs(first, second)

    assert comparison.fork is not None
    assert [line["step"] for line in comparison.fork] == [17, 17]
    assert comparison.agreed == (2, 17 * 50)


def test_other_seeds_fork_in_the_first_step(tmp_path: Path) -> None:
    """The settings that differ are listed."""
    comparison = compare_order_logs(
        write_log(tmp_path / "a", seed=1), write_log(tmp_path / "b", seed=2)
    )

    assert comparison.fork is not None
    assert comparison.fork[0]["step"] == 0
    assert comparison.agreed is None
    assert comparison.settings == ["seed: 1, 2"]


def test_batch_sizes_are_compared_at_common_positions(tmp_path: Path) -> None:
    """Steps of 50 and 30 meet every 150 positions, and a log may begin in the middle."""
    whole = write_log(tmp_path / "a", step_size=50)
    resumed = write_log(tmp_path / "b", step_size=30, position=1500)
    comparison = compare_order_logs(whole, resumed)

    assert comparison.fork is None
    assert comparison.compared == 10


def test_logs_without_a_common_position_are_rejected(tmp_path: Path) -> None:
    """Without a common position, comparing is an error."""
    first, second = write_log(tmp_path / "a"), write_log(tmp_path / "b")
    second.write_text(second.read_text().splitlines()[0])

    with pytest.raises(StateError, match="have no position in common"):
        compare_order_logs(first, second)


@pytest.mark.parametrize(
    "content", ["not json\n", "[1]\n", '{"order_log": 1}\n{"epoch": 0}\n', None]
)
def test_an_invalid_log_is_rejected(tmp_path: Path, content: str | None) -> None:
    """The error names the file and how to write a log."""
    good, bad = write_log(tmp_path / "a"), tmp_path / "b"
    if content is not None:
        bad.write_text(content)

    with pytest.raises(StateError, match=r"b: not a log of an order .* --log FILE"):
        compare_order_logs(good, bad)


@pytest.mark.parametrize("step_size", [10, 50, 150])
def test_a_log_says_what_was_delivered_between_two_positions(
    step_size: int, tmp_path: Path
) -> None:
    """Steps of any size that end there; None if none do, or in another epoch."""
    log = write_log(tmp_path / "a", step_size=step_size)
    plan = EpochPlan([30] * 100, seed=1, epoch=2, lanes=4, pool_size=9)
    state = capture_state(plan, 0, fingerprint="f")

    for start, stop in ((0, 150), (150, 300), (1500, 3000)):
        found = logged_digest(log, state, 2, start, stop)
        assert found == digest(*plan.slice(start, stop))
    assert logged_digest(log, state, 2, 0, 151) is None
    assert logged_digest(log, state, 1, 0, 150) is None


def test_the_log_of_another_order_is_refused(tmp_path: Path) -> None:
    """The settings that differ are named."""
    plan = EpochPlan([30] * 100, seed=2, epoch=2, lanes=4, pool_size=9)
    with pytest.raises(StateError, match="seed is 1 in the log and 2 in the state"):
        logged_digest(write_log(tmp_path / "a"), capture_state(plan, 0, fingerprint="f"), 2, 0, 50)


def test_steps_logged_twice_count_as_last_logged(tmp_path: Path) -> None:
    """A run that was killed repeats the steps since its last checkpoint."""
    log = write_log(tmp_path / "a")
    first = json.loads(log.read_text().splitlines()[1])
    with log.open("a") as file:
        file.write(json.dumps(first | {"receipt": "00000000000000ff"}) + "\n")
    plan = EpochPlan([30] * 100, seed=1, epoch=2, lanes=4, pool_size=9)

    assert logged_digest(log, capture_state(plan, 0, fingerprint="f"), 2, 0, 50) == 255
