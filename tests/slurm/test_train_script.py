# SPDX-License-Identifier: Apache-2.0
"""The training script: who is told to stop goes on later, who is cancelled or fails does not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.stand_ins import TRAINING, make_repository

pytestmark = pytest.mark.long


def submit(slurm: Cluster, folder: Path, ends: str, *arguments: str, **env: str) -> int:
    """Submit the script with a stand-in for the training program, two processes on each node."""
    make_repository(folder, training=TRAINING)
    return slurm.submit(
        "--ntasks-per-node=2",
        *("slurm/train_streaming_robocasa.sh", *arguments),
        env={"REPO_ID": "me/data", "RUN": sys.executable, "ENDS": ends} | env,
        cwd=folder,
    )


def starts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("start-*"))


def test_a_job_that_is_told_to_stop_goes_on_later(slurm: Cluster, tmp_path: Path) -> None:
    """USR1, as before the time limit: all processes save, the job is requeued and finishes."""
    job = submit(slurm, tmp_path, "wait 0", "--dummy", STEPS="7", BATCH_SIZE="3")
    slurm.wait_for_output(job, "ready", times=4)
    slurm.signal(job, "USR1")
    slurm.hurry(job, 1)

    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert starts(tmp_path) == [f"start-{n}-rank-{rank}" for n in range(2) for rank in range(4)]
    given = (tmp_path / "start-1-rank-3").read_text().split("\n")
    options = dict(zip(given[::2], given[1::2], strict=False))
    assert given[-1] == "--dummy"
    assert options["--repo_id"] == "me/data"
    assert options["--resume_from"] == "latest"
    assert (options["--steps"], options["--batch_size"]) == ("7", "3")


def test_a_job_that_slurm_requeues_begins_again(slurm: Cluster, tmp_path: Path) -> None:
    """As after a preemption: Slurm ends script and processes with TERM, and starts both anew."""
    job = submit(slurm, tmp_path, "wait 0")
    slurm.wait_for_output(job, "ready", times=4)
    slurm.requeue(job)

    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert len(starts(tmp_path)) == 8
    assert slurm.show(job)["Restarts"] == "1"


def test_a_cancelled_job_stays_cancelled(slurm: Cluster, tmp_path: Path) -> None:
    """Its processes save and end with the same code; nobody wants it back."""
    job = submit(slurm, tmp_path, "wait 0")
    slurm.wait_for_output(job, "ready", times=4)
    slurm.run("scancel", str(job))
    found = slurm.wait(job)

    assert (found["JobState"], found["Restarts"]) == ("CANCELLED", "0"), slurm.output(job)


def test_a_job_that_fails_is_not_tried_again(slurm: Cluster, tmp_path: Path) -> None:
    """An error would only come again."""
    job = submit(slurm, tmp_path, "1")
    found = slurm.wait(job)

    assert (found["JobState"], found["ExitCode"], found["Restarts"]) == ("FAILED", "1:0", "0")
