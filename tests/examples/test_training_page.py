# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/training.md do what the page says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.examples.runs import REPO, SIZES, curve, environment, receipts
from tests.servers.ports import free_port

pytestmark = pytest.mark.long

PAGE = REPO / "docs" / "training.md"
MEET = {"torchrun": "master-port", "accelerate": "main_process_port"}
SMALLER = {"--episodes": "3", "--frames": "20", "--size": "32x32"}
# The page gives sizes in its first command only; all later commands resume with them.
SMALLER |= {f"--{name}": str(size) for name, size in SIZES.items()}
TRAIN = "examples/scaling/train_streaming_multinode.py"
# Programs whose own tests run them: test_learning, test_lerobot_command, tests/slurm/test_training.
ELSEWHERE = ("learn.py", "measure_gpu.py", "robostream.lerobot_train", "sbatch")


def commands() -> list[list[str]]:
    """The commands of the page in its order; a backslash at a line's end continues it."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    return [
        shlex.split(line) for block in blocks for line in block.replace("\\\n", "").splitlines()
    ]


def run(words: list[str], folder: Path) -> str:
    """Run a command of the page in a folder, as small as it goes."""
    if TRAIN in words:
        words = [*words, "--log_freq", "1"]
        words[words.index("--steps") + 1] = str(int(words[words.index("--steps") + 1]) // 20)
    program, *arguments = words
    if program == "robostream":
        program, arguments = sys.executable, ["-m", "robostream.cli.main", *arguments]
    if program in ("torchrun", "accelerate"):
        arguments.insert(arguments.index(TRAIN), f"--{MEET[program]}={free_port()}")
    path = str(Path(sys.executable).parent / program)
    done = subprocess.run(
        [path, *arguments],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (words, done.stdout + done.stderr)
    return done.stdout


def test_the_commands_of_the_page(tmp_path: Path) -> None:
    """One run goes from one process to two, under torchrun and accelerate; its receipts agree."""
    for name in ("examples", "slurm"):
        (tmp_path / name).symlink_to(REPO / name)
    (described,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "mix.yaml").write_text(described)
    outputs = []
    for words in commands():
        if not any(word.endswith(ELSEWHERE) or word in ELSEWHERE for word in words):
            small = [SMALLER.get(before, word) for before, word in pairwise(["", *words])]
            outputs.append(run(small, tmp_path))

    out = tmp_path / "outputs" / "train" / "streaming_multinode"
    assert [line["step"] for line in curve(out)] == list(range(1, 21))
    assert len(outputs) == 10
    (compared,) = (text for text in outputs if "positions" in text)
    assert f"agree at all {len(receipts(out))} positions" in compared
    mixed = curve(tmp_path / "outputs" / "train" / "mixed")
    assert [line["step"] for line in mixed] == [1, 2, 3, 4, 5]
