# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/inspect.md run as they stand, on a small dataset."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.cli.main import main

REPO = Path(__file__).parents[2]
PAGE = (REPO / "docs" / "inspect.md").read_text()

pytestmark = pytest.mark.long


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset, a state, a checkpoint and a log of a run, under the names of the page."""
    monkeypatch.chdir(tmp_path)
    small = ["--episodes", "10", "--frames", "14", "--cameras", "1", "--size", "64x48"]
    assert main(["synth", "my_dataset", *small]) == 0
    stream = StreamingLeRobotDataset("my_dataset", rank=0, world_size=1, camera_keys=[])
    state = StreamingDataLoader(stream, batch_size=64, num_workers=0).state_dict()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/loader_state.json").write_text(json.dumps(state))
    torch.save({"loader": state}, tmp_path / "run/checkpoint.pt")
    assert main(["order", "my_dataset", "--batch-size", "64", "--log", "run/order.jsonl"]) == 0
    return tmp_path


def test_the_commands_run(folder: Path) -> None:
    """Every command on the local dataset exits with 0 and makes the files it names."""
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    commands = [shlex.split(line, comments=True) for line in lines]
    local = [words for words in commands if words[2] == "my_dataset"]
    for words in local:
        # The dataset is small: it has no step 812.
        assert main([word.replace("812", "1") for word in words[1:]]) == 0, words

    assert len(local) == len(commands) - 1 == 9
    for name in ("page.html", "train.json", "spike.png", "my_dataset/meta/stats.json"):
        assert (folder / name).stat().st_size > 1000


def test_the_program_prints_a_quantile_for_each_joint(folder: Path) -> None:
    """As a reader pastes it."""
    (code,) = blocks("python")
    environment = os.environ | {"PYTHONPATH": str(REPO / "src")}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert len(done.stdout.strip("[]\n").split()) == 6
