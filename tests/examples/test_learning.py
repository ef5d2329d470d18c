# SPDX-License-Identifier: Apache-2.0
"""The policy learns, and the programs that measure it say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from examples.act import learn
from examples.scaling import measure_gpu

pytestmark = pytest.mark.long


def test_act_learns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """On episodes it has not seen it is far better than the mean action, and than staying still.

    After few steps on few and small pictures; the command's own sizes give a better figure.
    """
    sizes = ["--episodes", "12", "--image_side_px", "32", "--steps", "150"]
    learn.main([*sizes, "--output_dir", str(tmp_path), "--json"])
    errors = json.loads(capfd.readouterr().out)

    assert errors["actions"] > 400
    assert errors["policy"] < 0.75 * errors["mean"]
    assert errors["policy"] < 0.8 * errors["still"]


def test_the_measure_of_how_training_is_fed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It makes a dataset, trains in bf16, and writes what it printed."""
    out = tmp_path / "figures.json"
    policy = ["--width=16", "--heads=2", "--feedforward=16", "--encoder_layers=1"]
    sizes = ["--backbone_width=4", "--n_action_steps=4", "--batch_size=8", "--num_workers=1"]
    data = ["--episodes=1", "--image_side_px=32", f"--root={tmp_path / 'dataset'}"]
    steps = ["--steps=6", "--warmup_steps=2", "--log_freq=2", f"--out={out}"]
    measure_gpu.main([*policy, *sizes, *data, *steps])
    figures = json.loads(out.read_text())

    assert json.loads(capfd.readouterr().out) == figures
    assert figures["samples"] == 6 * 8
    assert 0 <= figures["data_wait_share"] < 1
    assert figures["images_per_s"] == pytest.approx(3 * figures["samples_per_s"])
    assert (figures["mixed_precision"], figures["picture"]) == ("bf16", "32x32")
