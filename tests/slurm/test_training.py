# SPDX-License-Identifier: Apache-2.0
"""Training on two nodes through the script: preempted, requeued, finished, every frame once."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from examples.scaling.checkpoint import find_checkpoints
from tests.examples.runs import REPO, environment, flags, lines, planned_receipts, receipts
from tests.loader.programs import wait_until
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.long

EPOCHS, STEPS_PER_EPOCH = 20, 8


def test_a_preempted_run_goes_on_and_reads_every_frame_once(slurm: Cluster, tmp_path: Path) -> None:
    """USR1 to all processes, also those that read data: they save, are requeued, and finish."""
    out = tmp_path / "out"
    job = slurm.submit(
        *("--ntasks-per-node=1", "slurm/train_streaming_robocasa.sh"),
        *flags(out, batch_size=4, steps=EPOCHS * STEPS_PER_EPOCH, save_freq=1000),
        env=environment()
        | {"REPO_ID": "some/name", "RUN": sys.executable, "MIXED_PRECISION": "no"},
        cwd=REPO,
    )
    log = out / "log.jsonl"
    assert wait_until(lambda: log.exists() and bool(lines(log)), timeout_s=300), slurm.output(job)
    slurm.signal(job, "USR1")
    slurm.hurry(job, restart=1)

    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    assert len(find_checkpoints(out)) == 2  # where it was preempted, and the end
    assert receipts(out) == planned_receipts(out, EPOCHS, step_size=8)
