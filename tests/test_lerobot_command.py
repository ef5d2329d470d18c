# SPDX-License-Identifier: Apache-2.0
"""`python -m robostream.lerobot_train` in environments that have LeRobot.

LeRobot wants another torch than the other tests. LEROBOT_PYTHON names the Python of an environment
with `pip install 'lerobot[training,diffusion]==0.6.1' robostream`, or with `pip install
lerobot==0.4.4 robostream`, or both with ":" between them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from robostream import LeRobotDatasetMetadata
from robostream.lerobot_train import TESTED
from tests.examples.runs import DATASET, REPO, environment
from tests.fixture_datasets import FIXTURES
from tests.servers.ports import free_port
from tests.servers.required import lacking

pytestmark = pytest.mark.long

PYTHONS = list(filter(None, os.environ.get("LEROBOT_PYTHON", "").split(os.pathsep)))
PAGE = REPO / "docs" / "training.md"
DATA = ("--dataset.repo_id=some/name", f"--dataset.root={DATASET}", "--dataset.video_backend=pyav")
STREAM = (*DATA, "--dataset.streaming=true")
POLICY = (
    "--policy.type=act",
    "--policy.device=cpu",
    "--policy.push_to_hub=false",
    "--policy.pretrained_backbone_weights=null",
)
SIZES = {"chunk_size": 4, "n_action_steps": 4, "dim_model": 16, "dim_feedforward": 16, "n_heads": 2}
ACT = (*POLICY, *(f"--policy.{name}={size}" for name, size in SIZES.items()))
RUN = ("--batch_size=4", "--num_workers=1", "--log_freq=1", "--seed=7")


@pytest.fixture(params=PYTHONS or [None])
def python(request: pytest.FixtureRequest) -> str:
    """A Python that has LeRobot."""
    if request.param is None:
        lacking("LEROBOT", f"LEROBOT_PYTHON names no Python with LeRobot {' or '.join(TESTED)}")
    return str(request.param)


def variables() -> dict[str, str]:
    paths = {"PYTHONPATH": str(REPO / "src"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return environment() | paths


def program(python: str, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [python, *words],
        env=variables(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def train(python: str, *words: str, launcher: tuple[str, ...] = ()) -> str:
    """Run the command to its end; return what it printed."""
    with program(python, *launcher, "-m", "robostream.lerobot_train", *words) as running:
        assert running.stdout is not None
        printed = running.stdout.read()
    assert running.returncode == 0, printed
    return printed


def steps(printed: str) -> dict[int, str]:
    """By step: loss and norm of the gradients, as LeRobot prints them."""
    found = re.findall(r"step:(\d+) .*?(loss:\S+ grdn:\S+)", printed)
    return {int(step): values for step, values in found}


def config_of(checkpoint: Path) -> str:
    return f"--config_path={checkpoint}/pretrained_model/train_config.json"


def state_of(checkpoint: Path) -> tuple[int, int, int]:
    """Seed, epoch and position of a checkpoint's loader."""
    state = json.loads((checkpoint / "training_state" / "loader_state.json").read_text())
    return state["seed"], state["epoch"], state["position"]


def lines_of(running: subprocess.Popen[str]) -> Iterator[str]:
    assert running.stdout is not None
    return iter(running.stdout)


def version_of(python: str) -> str:
    code = "import importlib.metadata; print(importlib.metadata.version('lerobot'))"
    return subprocess.check_output([python, "-c", code], text=True).strip()


def test_a_killed_run_continues_as_if_nothing_had_happened(tmp_path: Path, python: str) -> None:
    """After step 11 of 20: all losses, and the weights at the end, are those of a whole run.

    Augmentation is on, and the second epoch begins with step 17.
    """
    flags = (*STREAM, "--dataset.image_transforms.enable=true", *ACT, *RUN, "--save_freq=5")
    whole = train(python, *flags, "--steps=20", f"--output_dir={tmp_path / 'whole'}")
    words = (*flags, "--steps=20", f"--output_dir={tmp_path / 'killed'}")
    with program(python, "-m", "robostream.lerobot_train", *words) as running:
        before = ""
        for line in lines_of(running):
            before += line
            if "step:11 " in line:
                running.send_signal(signal.SIGKILL)
                break
    last = tmp_path / "killed" / "checkpoints" / "last"
    assert state_of(last) == (7, 0, 40), before
    resumed = train(python, config_of(last), "--resume=true")

    assert {**steps(before), **steps(resumed)} == steps(whole)
    assert list(steps(resumed)) == list(range(11, 21))
    assert state_of(last) == (7, 1, 16)
    ends = [tmp_path / run / "checkpoints" / "000020" for run in ("whole", "killed")]
    weights = [(end / "pretrained_model" / "model.safetensors").read_bytes() for end in ends]
    assert weights[0] == weights[1]


def test_a_run_continues_on_two_processes(tmp_path: Path, python: str) -> None:
    """With half as many frames in each batch, from the same position."""
    train(python, *STREAM, *ACT, *RUN, "--steps=2", f"--output_dir={tmp_path / 'out'}")
    last = tmp_path / "out" / "checkpoints" / "last"
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node=2")
    words = (config_of(last), "--resume=true", "--steps=5", "--batch_size=2")
    printed = train(python, *words, launcher=(*launcher, f"--master-port={free_port()}"))

    assert list(steps(printed)) == [3, 4, 5]
    assert state_of(last) == (7, 0, 20)


def test_a_map_style_run_trains_and_continues(tmp_path: Path, python: str) -> None:
    """Robostream's dataset in LeRobot's own loader."""
    printed = train(python, *DATA, *ACT, *RUN, "--steps=2", f"--output_dir={tmp_path / 'out'}")
    last = tmp_path / "out" / "checkpoints" / "last"
    resumed = train(python, config_of(last), "--resume=true", "--steps=3")

    assert list(steps(printed)) == [1, 2]
    assert list(steps(resumed)) == [3]
    assert not (last / "training_state" / "loader_state.json").exists()


def test_frames_that_a_policy_leaves_out(tmp_path: Path, python: str) -> None:
    """Diffusion leaves out 7 frames of each episode; episodes 1 and 3 are chosen."""
    policy = [word.replace("type=act", "type=diffusion") for word in POLICY]
    policy += ["--policy.down_dims=[16,32]", "--policy.crop_shape=null", "--policy.n_groups=4"]
    policy += ["--policy.spatial_softmax_num_keypoints=4"]
    flags = (*STREAM, "--dataset.episodes=[1,3]", *policy, *RUN, "--steps=1")
    printed = train(python, *flags, f"--output_dir={tmp_path / 'out'}")

    assert list(steps(printed)) == [1]
    assert "drop_n_last_frames=7" in printed
    lengths = LeRobotDatasetMetadata("some/name", DATASET).episodes["length"]
    kept = sum(max(0, lengths[episode] - 7) for episode in (1, 3))
    assert f"dataset.num_frames={kept} " in printed


def test_a_mixture_is_trained_on_and_resumed(tmp_path: Path, python: str) -> None:
    """The loss of each dataset is in the log; a resumed run's losses are those of a whole one."""
    mixture = tmp_path / "mix.yaml"
    names = ("av1_multifile", "h264_bframes", "images")
    sources = [{"repo_id": name, "root": str(FIXTURES / name), "weight": 1} for name in names]
    mixture.write_text(yaml.safe_dump({"sources": sources}))
    words = (f"--dataset.repo_id={mixture}", "--dataset.streaming=true", *ACT, *RUN)
    whole = train(python, *words, "--steps=4", f"--output_dir={tmp_path / 'whole'}")
    first = train(python, *words, "--steps=2", f"--output_dir={tmp_path / 'parts'}")
    last = tmp_path / "parts" / "checkpoints" / "last"
    assert state_of(last) == (7, 0, 8)
    rest = train(python, config_of(last), "--resume=true", "--steps=4")

    assert {**steps(first), **steps(rest)} == steps(whole)
    by_dataset = r"step:(\d) loss by dataset: (.*)"
    assert re.findall(by_dataset, first + rest) == re.findall(by_dataset, whole)
    assert [step for step, _ in re.findall(by_dataset, whole)] == ["1", "2", "3", "4"]


SPLIT = """
import sys
from lerobot.configs import parser
from lerobot.configs.train import TrainPipelineConfig
from lerobot.datasets import factory
import accelerate, lerobot.scripts.lerobot_train as command
from robostream import lerobot_train

@parser.wrap()
def main(cfg: TrainPipelineConfig):
    cfg.validate()
    cfg.dataset.streaming = False
    theirs = [sorted(d.episodes) for d in factory.make_train_eval_datasets(cfg)]
    lerobot_train.replace_names(lerobot_train.LeRobotRun(factory), command, factory, accelerate)
    for streaming in (False, True):
        cfg.dataset.streaming = streaming
        ours = command.make_train_eval_datasets(cfg)
        assert [d.episodes for d in ours] == theirs, theirs
        print(type(ours[1]).__name__, [d.episodes for d in ours])

main()
"""


def test_exactly_lerobots_episodes_are_held_out(tmp_path: Path, python: str) -> None:
    """LeRobot's own function, unchanged, and robostream's streams agree; an evaluation runs."""
    if version_of(python) == "0.4.4":
        lacking("LEROBOT_EVAL_SPLIT", "LeRobot 0.4.4 has no eval_split")
    script, out = tmp_path / "split.py", tmp_path / "out"
    script.write_text(SPLIT)
    split = ("--dataset.eval_split=0.3", "--eval_steps=2")
    with program(python, str(script), *DATA, *split, *ACT, f"--output_dir={out}") as running:
        compared = "".join(lines_of(running))
    assert running.returncode == 0, compared
    words = (*STREAM, *split, "--max_eval_samples=8", *ACT, *RUN, "--steps=4")
    printed = train(python, *words, f"--output_dir={out}")
    episodes = re.search(r"^StreamingLeRobotDataset \[(\[.*?\]), (\[.*?\])\]$", compared, re.M)

    assert episodes is not None
    kept, held_out = (json.loads(part) for part in episodes.groups())
    assert sorted(kept + held_out) == [0, 1, 2, 3, 4]
    assert f"dataset.num_episodes={len(kept)}" in printed
    assert re.findall(r"step (\d): eval_loss=", printed) == ["2", "4"]


def test_the_page_loads_a_trained_policy(tmp_path: Path, python: str) -> None:
    """The code of docs/training.md returns an action from a checkpoint of the command."""
    out = tmp_path / "outputs" / "train" / "my_act"
    train(python, *STREAM, *ACT, *RUN, "--steps=1", f"--output_dir={out}")
    (code,) = re.findall(r"^```python\n(.*?from_pretrained.*?)^```", PAGE.read_text(), re.M | re.S)
    code = code.replace('"me/my_dataset"', f'"some/name", root="{DATASET}"')
    with subprocess.Popen(
        [python, "-c", code], cwd=tmp_path, env=variables(), stdout=subprocess.PIPE, text=True
    ) as running:
        printed = "".join(lines_of(running))

    (size,) = LeRobotDatasetMetadata("some/name", DATASET).features["action"]["shape"]

    assert running.returncode == 0
    assert printed.endswith(f"torch.Size([1, {size}])\n")
