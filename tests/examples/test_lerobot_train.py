# SPDX-License-Identifier: Apache-2.0
"""LeRobot's own training command, fed by robostream.

LeRobot wants another torch than the other tests, so it has an environment of its own:
LEROBOT_PYTHON names its Python (`pip install 'lerobot[training]==0.6.1' robostream`).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.examples.runs import DATASET, REPO, environment
from tests.servers.required import lacking

pytestmark = pytest.mark.long

PYTHON = os.environ.get("LEROBOT_PYTHON")
PROGRAM = REPO / "examples" / "lerobot_train.py"
SIZES = {"chunk_size": 4, "n_action_steps": 4, "dim_model": 16, "dim_feedforward": 16, "n_heads": 2}


def train(*words: str) -> str:
    done = subprocess.run(
        [str(PYTHON), str(PROGRAM), *words],
        env=environment() | {"PYTHONPATH": str(REPO / "src"), "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("streaming", [True, False])
def test_lerobots_command_trains_and_goes_on(tmp_path: Path, streaming: bool) -> None:
    """A few steps of its ACT; a stream goes on after the last frame it was given."""
    if PYTHON is None:
        lacking("LEROBOT", "LEROBOT_PYTHON names no Python with LeRobot 0.6.1")
    out = tmp_path / "out"
    dataset = ["--dataset.repo_id=some/name", f"--dataset.root={DATASET}"]
    dataset += [f"--dataset.streaming={str(streaming).lower()}", "--dataset.video_backend=pyav"]
    policy = [f"--policy.{name}={size}" for name, size in SIZES.items()]
    policy += ["--policy.type=act", "--policy.device=cpu", "--policy.push_to_hub=false"]
    policy += ["--policy.pretrained_backbone_weights=null"]
    run = ["--batch_size=4", "--num_workers=1", "--log_freq=1", f"--output_dir={out}"]
    printed = train(*dataset, *policy, *run, "--steps=3")
    assert "step:3 smpl:12 " in printed
    last = out / "checkpoints" / "last"
    printed = train(
        f"--config_path={last}/pretrained_model/train_config.json", "--resume=true", "--steps=5"
    )

    assert "step:5 smpl:20 " in printed
    if streaming:
        state = json.loads((last / "training_state" / "loader_state.json").read_text())
        assert (state["epoch"], state["position"]) == (0, 5 * 4)
