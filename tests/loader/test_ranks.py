# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import sys

import pytest

from robostream.errors import SelectionError
from robostream.loader.cursor import choose_lanes
from robostream.loader.position import Rank, discover_rank

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    # Other tests of this process may have used accelerate.
    monkeypatch.delitem(sys.modules, "accelerate.state", raising=False)


def test_alone_without_a_launcher() -> None:
    """No launcher means one process."""
    assert discover_rank() == Rank(0, 1, "no launcher")


def test_given_numbers_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments beat the environment."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert discover_rank(3, 8) == Rank(3, 8, "the arguments")


def test_torchruns_variables_come_before_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    """RANK and WORLD_SIZE come first, then SLURM's; if one of a pair is not set, it is ignored."""
    monkeypatch.setenv("SLURM_PROCID", "5")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "6")
    assert discover_rank() == Rank(5, 6, "SLURM_PROCID and SLURM_STEP_NUM_TASKS")
    monkeypatch.setenv("RANK", "1")
    assert discover_rank() == Rank(5, 6, "SLURM_PROCID and SLURM_STEP_NUM_TASKS")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert discover_rank() == Rank(1, 2, "RANK and WORLD_SIZE")


def set_slurm(monkeypatch: pytest.MonkeyPatch, **values: int) -> None:
    for name, value in values.items():
        monkeypatch.setenv(f"SLURM_{name}", str(value))


def test_a_step_counts_its_own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """`srun -n 2` in a job of 8 tasks has two ranks, and an interactive shell's step has one."""
    set_slurm(monkeypatch, PROCID=1, NTASKS=8, STEP_NUM_TASKS=2)
    assert discover_rank() == Rank(1, 2, "SLURM_PROCID and SLURM_STEP_NUM_TASKS")
    set_slurm(monkeypatch, PROCID=0, NTASKS=8, STEP_NUM_TASKS=1)
    assert discover_rank().world_size == 1


def test_a_batch_script_without_srun_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain python in a job of 8 tasks would deliver an eighth; every cure is one that works."""
    set_slurm(monkeypatch, PROCID=0, NTASKS=8)
    with pytest.raises(SelectionError, match=r"job of 8 tasks.*srun.*pass rank=0.*unset SLURM_PR"):
        discover_rank()

    assert discover_rank(0, 1) == Rank(0, 1, "the arguments")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert discover_rank().rank == 3
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("SLURM_PROCID")
    assert discover_rank() == Rank(0, 1, "no launcher")


@pytest.mark.parametrize("values", [{"PROCID": 0, "NTASKS": 1}, {"PROCID": 0}, {"NTASKS": 8}])
def test_a_job_of_one_task_and_a_login_shell_are_alone(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, int]
) -> None:
    """A batch script that asked for one task, or for no number, and salloc's shell."""
    set_slurm(monkeypatch, **values)

    assert discover_rank() == Rank(0, 1, "no launcher")


def test_half_a_pair_and_nonsense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rank would silently train on the wrong share."""
    with pytest.raises(SelectionError, match="both rank and world_size"):
        discover_rank(rank=1)
    with pytest.raises(SelectionError, match="0 <= rank < world_size"):
        discover_rank(2, 2)
    with pytest.raises(SelectionError, match="rank must be >= 0, a whole number"):
        discover_rank(True, 2)
    monkeypatch.setenv("RANK", "first")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(SelectionError, match="want whole numbers in RANK"):
        discover_rank()
    monkeypatch.setenv("RANK", "9")
    with pytest.raises(SelectionError, match="from RANK and WORLD_SIZE"):
        discover_rank()


@pytest.mark.parametrize("world_size", [1, 2, 3, 5, 7, 8, 48, 1000])
def test_the_default_lanes_are_divided_by_the_world_size(world_size: int) -> None:
    """By default each rank has lanes of its own."""
    assert choose_lanes(None, 10_000, world_size, shuffle=True) % world_size == 0


def test_lanes_that_cost_locality_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """The warning says what it costs and what would help."""
    with caplog.at_level(logging.WARNING):
        assert choose_lanes(48, 100, 5, shuffle=True) == 48

    assert "A run begun with lanes=240 can share them evenly" in caplog.text
    with pytest.raises(SelectionError, match="lanes must be >= 1"):
        choose_lanes(0, 100, 1, shuffle=True)
