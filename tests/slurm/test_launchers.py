# SPDX-License-Identifier: Apache-2.0
"""The batch scripts of docs/slurm.md: ranks on two nodes share an epoch, whoever starts them."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
FRAMES = 62
FOUND_IN = {
    "srun": "SLURM_PROCID and SLURM_STEP_NUM_TASKS",
    "torchrun": "torch.distributed",
    "accelerate": "accelerate",
}
TRAIN = """
from pathlib import Path
from tests.loader.rank_program import main
main(Path(), batch_size=4, workers=1, steps="0", state=None)
"""


def documented_script(launcher: str) -> str:
    """The batch script of the documentation that starts processes with this launcher."""
    blocks = re.findall(r"```sh\n(#!.*?)```", (REPO / "docs" / "slurm.md").read_text(), re.DOTALL)
    starts = {"srun": "srun python", "torchrun": "exec torchrun", "accelerate": "exec accelerate"}
    (script,) = (block for block in blocks if starts[launcher] in block)
    return str(script)


def launch(slurm: Cluster, launcher: str, folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """Run the documented script in a folder; return the reports of the ranks it started."""
    (folder / "job.sh").write_text(documented_script(launcher))
    (folder / "train.py").write_text(TRAIN)
    environment = {
        "ACCELERATE_USE_CPU": "true",
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{REPO / 'src'}:{REPO}",
        "ROBOSTREAM_LAUNCHER": launcher,
    }
    job = slurm.submit(*arguments, "job.sh", cwd=folder, env=environment)
    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("rank-*.json"))]


@pytest.mark.parametrize("launcher", FOUND_IN)
def test_ranks_on_two_nodes_share_an_epoch(slurm: Cluster, tmp_path: Path, launcher: str) -> None:
    """Two ranks on each node, with worker processes, deliver every frame once and stay in step."""
    tasks = ["--ntasks-per-node=2"] if launcher == "srun" else []
    reports = launch(slurm, launcher, tmp_path, "--gpus-per-node=2", *tasks)

    assert [report["rank"] for report in reports] == [0, 1, 2, 3]
    assert [report["node"] for report in reports] == ["n1", "n1", "n2", "n2"]
    assert {report["found_in"] for report in reports} == {FOUND_IN[launcher]}
    assert {report["local_ranks"] for report in reports} == {2}
    frames = [i for report in reports for batch in report["batches"] for i in batch]
    # The tail is completed with frames of the epoch's beginning, so that all ranks end together.
    assert set(frames) == set(range(FRAMES))
    assert len(frames) == FRAMES + FRAMES % 4
    assert len({len(report["batches"]) for report in reports}) == 1
    assert all(report["state"] == reports[0]["state"] for report in reports)


def test_tasks_that_are_not_counted_per_node_find_their_neighbours(
    slurm: Cluster, tmp_path: Path
) -> None:
    """Three tasks for two nodes: two ranks share one node's cores and memory, one has its own."""
    seen = "from robostream.loader import local_ranks; print('ranks here:', local_ranks(3))"
    program = tmp_path / "see.py"
    program.write_text(seen)
    job = slurm.submit(
        *("--nodes=2", "--ntasks=3", f"--wrap=srun {sys.executable} {program}"),
        env={"PYTHONPATH": str(REPO / "src")},
    )

    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert sorted(slurm.output(job).splitlines()) == ["ranks here: 1"] + ["ranks here: 2"] * 2
