# SPDX-License-Identifier: Apache-2.0
"""The training program on a mixture of unlike datasets."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from examples.act import ActConfig
from examples.scaling.training import train
from robostream import MixtureDataset
from tests.examples.runs import (
    SIZES,
    finish,
    flags,
    lines,
    options,
    receipts,
    receipts_of,
    run_ranks,
    start_ranks,
    wait_for_step,
)
from tests.fixture_datasets import FIXTURES

pytestmark = pytest.mark.filterwarnings("ignore:Initializing zero-element:UserWarning")

STEPS, STEP_SIZE, STEPS_OF_EPOCH = 20, 12, 8
# Without dropout and latent, training draws no random numbers; without windows, each sample counts
# the same. So losses depend on the samples of a step, and not on how processes share them.
CALM = ActConfig(chunk=1, dropout=0, latent=0, **SIZES)


@pytest.fixture
def mixture(tmp_path: Path) -> Path:
    """Videos and images, two groups, a camera that two of three lack, another size of action."""
    sources: list[dict[str, Any]] = [
        {"repo_id": "kitchen", "root": str(FIXTURES / "av1_multifile"), "weight": 2},
        {"repo_id": "drawers", "root": str(FIXTURES / "h264_bframes"), "weight": 1, "group": "b"},
        {"repo_id": "table", "root": str(FIXTURES / "images"), "weight": 1},
    ]
    for source in sources:
        source["feature_map"] = {"action": ["action", list("abcdefg")]}
    schema = {"features": {"action": list("abcdefgh")}}
    path = tmp_path / "mixture.yaml"
    epoch = STEPS_OF_EPOCH * STEP_SIZE
    described = {"sources": sources, "epoch": epoch, "lanes": 12, "schema": schema}
    path.write_text(yaml.safe_dump(described))
    return path


def losses(output_dir: Path) -> list[list[float]]:
    """The losses of each step: of all samples, and of each dataset's."""
    logged = lines(output_dir / "log.jsonl")
    return [[line["loss"], *line["loss_by_dataset"].values()] for line in logged]


def settings(mixture: Path, **changes: Any) -> dict[str, Any]:
    usual = {"root": None, "mixture": mixture, "n_action_steps": 1}
    return usual | {"batch_size": STEP_SIZE} | changes


def test_losses_of_each_dataset_are_logged(tmp_path: Path, mixture: Path) -> None:
    """By name, weighted by samples they are the loss of the step; receipts are the plan's."""
    out = tmp_path / "out"
    train(options(out, policy=CALM, **settings(mixture, steps=3)))
    stream = MixtureDataset.from_file(mixture, rank=0, world_size=1)

    assert receipts(out) == receipts_of(stream, 1, STEP_SIZE)[:3]
    for line, batch in zip(lines(out / "log.jsonl"), stream_steps(stream), strict=False):
        counts = [batch.count(n) for n in range(3)]
        found = line["loss_by_dataset"]
        assert [*found] == [s.name for s, n in zip(stream.shares, counts, strict=True) if n]
        weighted = sum(
            loss * n for loss, n in zip(found.values(), filter(None, counts), strict=True)
        )
        assert weighted / STEP_SIZE == pytest.approx(line["loss"], rel=1e-5)


def stream_steps(stream: MixtureDataset) -> list[list[int]]:
    """The datasets of the samples of each step of epoch 0."""
    plan = stream.plan(0)
    starts = range(0, plan.num_frames, STEP_SIZE)
    return [plan.content.datasets_of(plan.slice(s, s + STEP_SIZE)[0]).tolist() for s in starts]


@pytest.mark.parametrize("flag", [{"val": 0.2}, {"map_style": True}, {"episodes": (0, 2)}])
def test_flags_of_one_dataset_are_refused(flag: dict[str, Any], mixture: Path) -> None:
    """Instead of being ignored."""
    with pytest.raises(ValueError, match=f"--{next(iter(flag))} is for one dataset"):
        options(mixture.parent, **settings(mixture, **flag))


@pytest.mark.long
def test_killed_on_2_and_1_and_3_processes_it_learns_the_same(
    tmp_path: Path, mixture: Path
) -> None:
    """Kill -9 in the middle of epochs: losses and receipts are those of a run left alone.

    Of the cameras, only the one that all datasets have: black images lie at the kink of the
    backbone's ReLUs, so rounding alone (of another number of threads, too) changes what is learnt.
    """
    described = yaml.safe_load(mixture.read_text())
    described["schema"]["cameras"] = {"observation.images.top": None}
    mixture.write_text(yaml.safe_dump(described))
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(options(straight, policy=CALM, **settings(mixture, steps=STEPS)))
    train(options(killed, policy=CALM, **settings(mixture, steps=1)))  # later runs take its policy
    for processes, step in ((2, 5), (1, 11)):
        share = settings(mixture, batch_size=STEP_SIZE // processes)
        ranks = start_ranks(flags(killed, **share, steps=1000, save_freq=2), processes)
        wait_for_step(ranks[0], killed, step)
        for rank in ranks:
            os.killpg(rank.pid, signal.SIGKILL)
        for rank in ranks:
            finish(rank, -signal.SIGKILL)
    run_ranks(flags(killed, **settings(mixture, batch_size=STEP_SIZE // 3), steps=STEPS), 3)

    stream = MixtureDataset.from_file(mixture, rank=0, world_size=1)
    assert receipts(killed) == receipts(straight) == receipts_of(stream, 3, STEP_SIZE)[:STEPS]
    wanted = losses(straight)
    for found, alone in zip(losses(killed), wanted, strict=True):
        assert found == pytest.approx(alone, rel=1e-5)
    assert wanted[0] != pytest.approx(wanted[1], rel=1e-2)  # other samples have other losses
