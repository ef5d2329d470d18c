# SPDX-License-Identifier: Apache-2.0
"""Processes under real launchers detect their ranks, share the epoch, and resume after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.ports import free_port

REPO = Path(__file__).parents[2]
FRAMES = 62
BIN = Path(sys.executable).parent


def command(launcher: str, world_size: int) -> list[str]:
    port = str(free_port())
    if launcher == "accelerate":
        return [
            str(BIN / "accelerate"),
            "launch",
            # The launcher's --cpu starts one process only; this way it starts all, on gloo.
            "--multi_gpu",
            f"--num_processes={world_size}",
            "--num_machines=1",
            "--mixed_precision=no",
            "--dynamo_backend=no",
            "--main_process_ip=127.0.0.1",
            f"--main_process_port={port}",
            "-m",
        ]
    return [
        str(BIN / "torchrun"),
        f"--nproc-per-node={world_size}",
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
        "-m",
    ]


def launch(
    launcher: str, world_size: int, out: Path, *arguments: object
) -> tuple[list[dict[str, Any]], int]:
    """Run the ranks; return their reports and the launcher's exit code."""
    out.mkdir()
    env = os.environ | {
        "GLOO_SOCKET_IFNAME": "lo",
        "ROBOSTREAM_LAUNCHER": launcher,
        "ACCELERATE_USE_CPU": "true",
        "PYTHONPATH": str(REPO),
    }
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "SLURM_PROCID", "SLURM_NTASKS"):
        env.pop(name, None)
    done = subprocess.run(
        [*command(launcher, world_size), "tests.loader.rank_program", str(out)]
        + [str(argument) for argument in arguments],
        cwd=REPO,
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    reports = [json.loads(path.read_text()) for path in sorted(out.glob("rank-*.json"))]
    # Fewer processes than asked for is a failure of the test, never a reason to pass.
    assert len(reports) == world_size, done.stdout + done.stderr
    assert [report["rank"] for report in reports] == list(range(world_size))
    assert {report["world_size"] for report in reports} == {world_size}
    return reports, done.returncode


def frames_of(reports: list[dict[str, Any]]) -> list[int]:
    return [index for report in reports for batch in report["batches"] for index in batch]


@pytest.mark.parametrize(
    ("launcher", "found_in"),
    [
        pytest.param("accelerate", "accelerate", marks=pytest.mark.long),
        ("torchrun", "torch.distributed"),
    ],
)
def test_two_processes_share_an_epoch_exactly(tmp_path: Path, launcher: str, found_in: str) -> None:
    """Under each launcher two ranks find themselves, are disjoint, cover all, and stay in step."""
    reports, code = launch(launcher, 2, tmp_path / "out", 4, 1, 0)

    assert code == 0
    assert {report["found_in"] for report in reports} == {found_in}
    assert sorted(frames_of(reports)) == list(range(FRAMES))
    assert len({len(report["batches"]) for report in reports}) == 1
    assert reports[0]["state"] == reports[1]["state"]


@pytest.mark.long
def test_a_killed_rank_and_an_elastic_resume(tmp_path: Path) -> None:
    """Rank 1 dies by kill -9 after 3 steps; one process resumes from rank 0's last state."""
    reports, code = launch("torchrun", 2, tmp_path / "first", 4, 2, "die:3")
    assert code != 0
    state = tmp_path / "state.json"
    state.write_text(json.dumps(reports[0]["state"]))
    resumed, code = launch("torchrun", 1, tmp_path / "second", 8, 0, 0, state)

    assert code == 0
    assert sorted(frames_of(reports) + frames_of(resumed)) == list(range(FRAMES))
    straight, _ = launch("torchrun", 1, tmp_path / "straight", 8, 0, 0)
    assert resumed[0]["state"] == straight[0]["state"]
    assert [sorted(b) for b in resumed[0]["batches"]] == [
        sorted(b) for b in straight[0]["batches"][3:]
    ]
