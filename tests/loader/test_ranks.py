# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging

import pytest

from robostream.errors import SelectionError
from robostream.loader.options import choose_lanes
from robostream.loader.ranks import Rank, discover_rank

VARIABLES = ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS")


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_alone_without_a_launcher() -> None:
    """No launcher means one process."""
    assert discover_rank() == Rank(0, 1, "no launcher")


def test_given_numbers_win(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arguments beat the environment."""
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")

    assert discover_rank(3, 8) == Rank(3, 8, "the arguments")


def test_torchruns_variables_come_before_slurms(monkeypatch: pytest.MonkeyPatch) -> None:
    """RANK and WORLD_SIZE first, then SLURM's; half a pair counts for nothing."""
    monkeypatch.setenv("SLURM_PROCID", "5")
    monkeypatch.setenv("SLURM_NTASKS", "6")
    assert discover_rank() == Rank(5, 6, "SLURM_PROCID and SLURM_NTASKS")
    monkeypatch.setenv("RANK", "1")
    assert discover_rank() == Rank(5, 6, "SLURM_PROCID and SLURM_NTASKS")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert discover_rank() == Rank(1, 2, "RANK and WORLD_SIZE")


def test_half_a_pair_and_nonsense_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rank would silently train on the wrong share."""
    with pytest.raises(SelectionError, match="both rank and world_size"):
        discover_rank(rank=1)
    with pytest.raises(SelectionError, match="0 <= rank < world_size"):
        discover_rank(2, 2)
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
    assert choose_lanes(None, world_size, shuffle=True) % world_size == 0


def test_lanes_that_cost_locality_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """The warning says what it costs and what would help."""
    with caplog.at_level(logging.WARNING):
        assert choose_lanes(48, 5, shuffle=True) == 48

    assert "lanes=240 would divide" in caplog.text
    with pytest.raises(SelectionError, match="lanes must be 1 or more"):
        choose_lanes(0, 1, shuffle=True)
