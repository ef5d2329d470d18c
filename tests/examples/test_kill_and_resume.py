# SPDX-License-Identifier: Apache-2.0
"""Runs that are killed, stopped and moved: they learn what a run that was left alone learns."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from examples.scaling.checkpoint import find_checkpoints
from examples.scaling.files import read_tensors
from examples.scaling.preemption import REQUEUE
from examples.scaling.training import train
from tests.examples.runs import (
    FRAMES,
    children,
    curve,
    finish,
    flags,
    options,
    planned_receipts,
    receipts,
    run_ranks,
    start,
    torchrun,
    wait_for_step,
)

pytestmark = pytest.mark.long


def learned(output_dir: Path) -> dict[str, torch.Tensor]:
    """The parameters in a run's last checkpoint."""
    parameters: dict[str, torch.Tensor] = read_tensors(
        find_checkpoints(output_dir)[-1] / "model.pt"
    )
    return parameters


def assert_same_run(one: Path, two: Path) -> None:
    assert curve(one) == curve(two)
    assert receipts(one) == receipts(two)
    parameters, others = learned(one), learned(two)
    assert parameters.keys() == others.keys()
    assert all(torch.equal(value, others[name]) for name, value in parameters.items())


def test_killed_three_times_a_run_learns_the_same_bit_for_bit(tmp_path: Path) -> None:
    """Killed by kill -9 at any moment: loss curve, receipts and parameters are one long run's."""
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(options(straight, steps=48))
    for step in (6, 17, 31):
        program = start(flags(killed, steps=48, save_freq=5))
        wait_for_step(program, killed, step)
        os.killpg(program.pid, signal.SIGKILL)
        assert finish(program, -signal.SIGKILL) is not None
        assert len(curve(killed)) < 48
    finish(start(flags(killed, steps=48, save_freq=5)))

    assert_same_run(straight, killed)
    assert receipts(killed) == planned_receipts(killed, epochs=6, step_size=8)


def test_a_run_moves_from_two_processes_to_one_to_four(tmp_path: Path) -> None:
    """One rank gets a signal, and all stop; with a constant global batch the receipts are equal."""
    program = start(flags(tmp_path, batch_size=4, steps=1000), launcher=torchrun(2))
    wait_for_step(program, tmp_path, 3)
    os.kill(children(program.pid)[1], signal.SIGUSR1)
    printed = finish(program, 1)  # torchrun's own code, whatever that of its processes
    assert f"exitcode  : {REQUEUE} " in printed
    stopped = int(find_checkpoints(tmp_path)[-1].name.removeprefix("checkpoint-"))
    on_one = (stopped // 8 + 1) * 8 + 3  # in the middle of an epoch
    train(options(tmp_path, batch_size=8, steps=on_one, resume_from="latest"))
    run_ranks(flags(tmp_path, batch_size=2, steps=on_one + 5), 4)

    assert [line["step"] for line in curve(tmp_path)] == list(range(1, on_one + 6))
    epochs = (on_one + 5) // 8
    assert receipts(tmp_path) == planned_receipts(tmp_path, epochs, step_size=8)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("map_style", [False, True])
def test_a_signal_makes_it_save_and_exit_with_75(
    number: signal.Signals, map_style: bool, tmp_path: Path
) -> None:
    """The step in hand is finished, a checkpoint written, and the exit code says 'again'."""
    settings = {"map_style": True, "num_workers": 1} if map_style else {"dummy": True}
    program = start(flags(tmp_path, steps=1000, save_freq=1000, **settings))
    wait_for_step(program, tmp_path, 2)
    os.killpg(program.pid, number)
    finish(program, REQUEUE)

    steps = len(receipts(tmp_path))
    assert [path.name for path in find_checkpoints(tmp_path)] == [f"checkpoint-{steps}"]


@pytest.mark.parametrize("changes", [{}, {"map_style": True}, {"dummy": True}])
def test_going_on_is_as_if_it_had_not_stopped(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Streaming or map-style, in the middle of an epoch or at its end (the 8th step)."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    train(options(whole, steps=20, **changes))
    for steps in (3, 8, 20):
        outcome = train(options(parts, steps=steps, resume_from="latest", **changes))
        assert (outcome.step, outcome.is_finished) == (steps, True)

    if not changes.get("dummy"):
        assert_same_run(whole, parts)
    assert receipts(whole) == receipts(parts)


def test_a_map_style_run_reads_every_frame_once_an_epoch(tmp_path: Path) -> None:
    """On two processes, then on one: the receipts of an epoch add up to all frames."""
    words = flags(tmp_path, batch_size=4, steps=11, num_workers=0, map_style=True)
    run_ranks(words, 2)
    train(options(tmp_path, steps=24, num_workers=1, map_style=True, resume_from="latest"))
    straight = tmp_path / "straight"
    train(options(straight, steps=24, map_style=True))

    assert receipts(tmp_path) == receipts(straight)
    whole = {receipt for _, stop, _, receipt in receipts(tmp_path) if stop == FRAMES}
    train(options(tmp_path / "streamed", steps=8))
    assert whole == {receipts(tmp_path / "streamed")[-1][-1]}
