# SPDX-License-Identifier: Apache-2.0
"""Validation while training: on held-out episodes, without any effect on the training."""

from __future__ import annotations

from pathlib import Path

import pytest
from torch.utils.data import default_collate

from examples.scaling.feed import action_window
from examples.scaling.learner import load_policy
from examples.scaling.training import train
from robostream import (
    LeRobotDataset,
    LeRobotDatasetMetadata,
    StateError,
    load_training_step,
    split_episodes,
)
from tests.examples.runs import CHUNK, DATASET, curve, flags, lines, options, receipts, run_ranks

META = LeRobotDatasetMetadata("some/name", DATASET)
SPLIT = split_episodes(META, val=0.4, seed=42)


def errors(output_dir: Path) -> list[tuple[int, float]]:
    """What a run logged of its validation."""
    return [(line["step"], line["val_error"]) for line in lines(output_dir / "validation.jsonl")]


def measured(checkpoint: Path) -> float:
    """The error of a checkpoint's policy on the held-out episodes, read map-style."""
    dataset = LeRobotDataset(
        "some/name",
        DATASET,
        episodes=SPLIT.val,
        delta_timestamps=action_window(META, CHUNK),
    )
    batch = default_collate(list(dataset))
    total = load_policy(checkpoint).errors(batch).sum()
    return float(total / (~batch["action_is_pad"]).sum())


@pytest.mark.long
@pytest.mark.parametrize("map_style", [False, True])
def test_validation_measures_and_changes_nothing(tmp_path: Path, map_style: bool) -> None:
    """However often it runs, the training is the same; the error is that of all items at once."""
    often, once = tmp_path / "often", tmp_path / "once"
    for folder, save_freq in ((often, 2), (once, 100)):
        outcome = train(options(folder, steps=6, val=0.4, save_freq=save_freq, map_style=map_style))

    assert curve(often) == curve(once)
    assert receipts(often) == receipts(once)
    assert [step for step, _ in errors(often)] == [2, 4, 6]
    assert errors(often)[-1:] == errors(once)
    assert load_training_step(outcome.checkpoint).split == SPLIT
    assert errors(once)[0][1] == pytest.approx(measured(outcome.checkpoint), rel=1e-5)


def test_a_run_keeps_the_split_it_began_with(tmp_path: Path) -> None:
    """The checkpoint has it: a resumed run needs no flag, and does not split anew."""
    train(options(tmp_path, steps=1, val=0.4, dummy=True))
    outcome = train(options(tmp_path, steps=2, dummy=True, resume_from="latest"))

    assert load_training_step(outcome.checkpoint).split == SPLIT


def test_a_run_without_validation_does_not_begin_one_later(tmp_path: Path) -> None:
    """It has trained on all episodes, so none is left to validate on."""
    train(options(tmp_path, steps=1, dummy=True))

    with pytest.raises(StateError, match="selection"):
        train(options(tmp_path, steps=2, val=0.4, dummy=True, resume_from="latest"))


@pytest.mark.long
def test_two_processes_validate_on_every_frame_once(tmp_path: Path) -> None:
    """They share the held-out frames, and count those that pad the last batch once."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    train(options(alone, steps=1, val=0.4))
    run_ranks(flags(together, steps=1, val=0.4, batch_size=4), 2)

    (one,), (two,) = (lines(folder / "validation.jsonl") for folder in (alone, together))
    assert one["actions"] == two["actions"]
    assert two["val_error"] == pytest.approx(one["val_error"], rel=0.05)
