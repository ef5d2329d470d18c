# SPDX-License-Identifier: Apache-2.0
"""Ranks on two nodes, started by srun alone, by torchrun and by accelerate, share an epoch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster

REPO = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
FRAMES = 62
# What srun runs, once per rank or once per node; each is followed by the module and its arguments.
LAUNCHERS = {
    "srun": f"srun {BIN}/python -m",
    "torchrun": "srun --ntasks=2 --ntasks-per-node=1 sh -c '"
    f"exec {BIN}/torchrun --nnodes=2 --nproc-per-node=2 --node-rank=$SLURM_NODEID "
    '--master-addr=127.0.0.1 --master-port=29500 -m "$0" "$@"\'',
    "accelerate": "srun --ntasks=2 --ntasks-per-node=1 sh -c '"
    f"exec {BIN}/accelerate launch --multi_gpu --num_machines=2 --num_processes=4 "
    "--machine_rank=$SLURM_NODEID --main_process_ip=127.0.0.1 --main_process_port=29500 "
    '--mixed_precision=no --dynamo_backend=no -m "$0" "$@"\'',
}
FOUND_IN = {
    "srun": "SLURM_PROCID and SLURM_STEP_NUM_TASKS",
    "torchrun": "torch.distributed",
    "accelerate": "accelerate",
}


def environment(launcher: str) -> dict[str, str]:
    return {
        "ACCELERATE_USE_CPU": "true",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{REPO / 'src'}:{REPO}",
        "ROBOSTREAM_LAUNCHER": launcher,
    }


def launch(slurm: Cluster, launcher: str, out: Path, *arguments: object) -> list[dict[str, Any]]:
    """Run the program in a job of two tasks on each of two nodes; return its ranks' reports."""
    out.mkdir()
    words = " ".join(map(str, ["tests.datasets.rank_program", out, *arguments]))
    job = slurm.submit(
        *("--nodes=2", "--ntasks-per-node=2", f"--chdir={REPO}"),
        f"--wrap={LAUNCHERS[launcher]} {words}",
        env=environment(launcher),
    )
    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    return [json.loads(path.read_text()) for path in sorted(out.glob("rank-*.json"))]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_on_two_nodes_share_an_epoch(slurm: Cluster, tmp_path: Path, launcher: str) -> None:
    """Two ranks on each node, with worker processes, deliver every frame once and stay in step."""
    reports = launch(slurm, launcher, tmp_path / "out", 4, 1, 0)

    assert [report["rank"] for report in reports] == [0, 1, 2, 3]
    assert [report["node"] for report in reports] == ["n1", "n1", "n2", "n2"]
    assert {report["found_in"] for report in reports} == {FOUND_IN[launcher]}
    frames = sorted(i for report in reports for batch in report["batches"] for i in batch)
    # The tail is completed with frames of the epoch's beginning, so that all ranks end together.
    assert set(frames) == set(range(FRAMES))
    assert len(frames) == FRAMES + FRAMES % 4
    assert len({len(report["batches"]) for report in reports}) == 1
    assert all(report["state"] == reports[0]["state"] for report in reports)
