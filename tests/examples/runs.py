# SPDX-License-Identifier: Apache-2.0
"""Runs of the training program on a fixture, small enough to be many."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.act import ActConfig
from examples.scaling.options import TrainOptions
from robostream import MixtureDataset, StreamingLeRobotDataset
from robostream.plan import Cut, format_receipt, step_receipts
from tests.fixture_datasets import FIXTURES
from tests.loader.programs import wait_until
from tests.servers.ports import free_port

REPO = Path(__file__).parents[2]
PROGRAM = REPO / "examples" / "scaling" / "train_streaming_multinode.py"
DATASET = FIXTURES / "av1_multifile"
FRAMES = 62
CHUNK = 4
SIZES = {"width": 16, "heads": 2, "feedforward": 16, "encoder_layers": 1, "backbone_width": 4}
LAUNCHERS_OWN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")


def options(output_dir: Path, **changes: Any) -> TrainOptions:
    """Options of a small run, for `train` in this process."""
    usual: dict[str, Any] = {
        "repo_id": "some/name",
        "root": str(DATASET),
        "output_dir": output_dir,
        "steps": 12,
        "batch_size": 8,
        "num_workers": 0,
        "save_freq": 5,
        "log_freq": 1,
        "n_action_steps": CHUNK,
        "policy": ActConfig(chunk=CHUNK, **SIZES),
    }
    return TrainOptions(**usual | changes)


def flags(output_dir: Path, **changes: object) -> list[str]:
    """The same as flags of the program; True is a flag without a value, None is no flag."""
    usual: dict[str, object] = {
        "repo_id": "some/name",
        "root": DATASET,
        "output_dir": output_dir,
        "resume_from": "latest",
        "batch_size": 8,
        "num_workers": 1,
        "log_freq": 1,
        "n_action_steps": CHUNK,
    }
    values = {name: v for name, v in (usual | SIZES | changes).items() if v is not None}
    words = [[f"--{name}"] if v is True else [f"--{name}", str(v)] for name, v in values.items()]
    return [word for words_of_one in words for word in words_of_one]


def start(
    words: list[str], *, launcher: Sequence[str] = (), env: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start the program, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, *launcher, str(PROGRAM), *words],
        env=environment() | dict(env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def torchrun(processes: int) -> list[str]:
    """Torchrun as a launcher."""
    places = ["--master-addr=127.0.0.1", f"--master-port={free_port()}"]
    return ["-m", "torch.distributed.run", f"--nproc-per-node={processes}", *places]


def run_ranks(words: list[str], processes: int, env: Mapping[str, str] | None = None) -> None:
    """Run the program in several processes to its end."""
    for rank in start_ranks(words, processes, env):
        finish(rank)


def start_ranks(
    words: list[str], processes: int, env: Mapping[str, str] | None = None
) -> list[subprocess.Popen[str]]:
    """Start the program in several processes, with the variables that launchers set."""
    meet = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [
        start(
            words,
            env={
                **dict(env or {}),
                **meet,
                **{"WORLD_SIZE": str(processes), "RANK": str(n), "LOCAL_RANK": str(n)},
            },
        )
        for n in range(processes)
    ]


def environment() -> dict[str, str]:
    """The variables of a process that no launcher has started yet."""
    outside = {k: v for k, v in os.environ.items() if k not in LAUNCHERS_OWN and "SLURM" not in k}
    return outside | {
        "GLOO_SOCKET_IFNAME": "lo",
        "ACCELERATE_USE_CPU": "true",
    }


def finish(program: subprocess.Popen[str], code: int = 0) -> str:
    """Wait for a program's end, which must be this exit code; return what it printed."""
    printed, _ = program.communicate(timeout=300)
    assert program.returncode == code, printed
    return printed


def wait_for_step(program: subprocess.Popen[str], output_dir: Path, step: int) -> None:
    """Return when a running program has logged a step."""
    path = output_dir / "log.jsonl"

    def is_there() -> bool:
        return program.poll() is not None or (path.exists() and len(lines(path)) >= step)

    assert wait_until(is_there, timeout_s=120)
    assert program.poll() is None, program.communicate()[0]


def children(process: int) -> list[int]:
    """The processes that a process has started."""
    return [int(n) for n in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a log that may still be written to."""
    text = path.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def curve(output_dir: Path) -> list[dict[str, Any]]:
    """What a run has learned, step by step; no times."""
    names = ("step", "epoch", "loss", "l1", "kl", "learning_rate")
    return [{name: line[name] for name in names} for line in lines(output_dir / "log.jsonl")]


def receipts(output_dir: Path) -> list[tuple[int, int, str, str]]:
    """What a run was given, step by step: epoch, position, digest, receipt."""
    steps = lines(output_dir / "order.jsonl")[1:]
    return [(s["epoch"], s["stop"], s["digest"], s["receipt"]) for s in steps]


def planned_receipts(output_dir: Path, epochs: int, step_size: int) -> list[tuple[Any, ...]]:
    """What the plan says a run of whole epochs is given."""
    head = lines(output_dir / "order.jsonl")[0]
    order = {"seed": head["seed"], "lanes": head["lanes"]}
    stream = StreamingLeRobotDataset("some/name", DATASET, rank=0, world_size=1, **order)
    return receipts_of(stream, epochs, step_size)


def receipts_of(
    stream: StreamingLeRobotDataset | MixtureDataset, epochs: int, step_size: int
) -> list[tuple[Any, ...]]:
    """What the plan of a stream gives in each step of some epochs."""
    cut = Cut(0, 1, step_size, drop_last=False)
    steps = [step for e in range(epochs) for step in step_receipts(stream.plan(e), cut, 0)]
    return [(s.epoch, s.stop, format_receipt(s.digest), format_receipt(s.receipt)) for s in steps]
