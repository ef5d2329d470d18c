# SPDX-License-Identifier: Apache-2.0
"""The cluster itself: what other tests build on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.long

SCRIPT = """#!/bin/sh
trap 'echo script' USR1
srun sh -c 'trap "echo step; exit 0" USR1; echo ready; while :; do sleep 0.1; done' &
while :; do wait $!; [ $? -gt 128 ] || break; done
"""


def test_a_job_runs_on_both_nodes(slurm: Cluster) -> None:
    """Two tasks, one on each node, see nothing of the machine's network but loopback."""
    see = "echo $SLURMD_NODENAME $SLURM_PROCID $(ip -o link | wc -l)"
    job = slurm.submit("--nodes=2", "--ntasks-per-node=1", f"--wrap=srun sh -c '{see}'")

    assert slurm.wait(job)["JobState"] == "COMPLETED"
    assert sorted(slurm.output(job).splitlines()) == ["n1 0 1", "n2 1 1"]


def test_a_job_that_fails_is_seen_to_fail(slurm: Cluster) -> None:
    """The exit code of the one task that failed is the job's."""
    job = slurm.submit("--nodes=2", "--wrap=srun sh -c 'exit $((SLURM_PROCID * 3))'")
    found = slurm.wait(job)

    assert (found["JobState"], found["ExitCode"]) == ("FAILED", "3:0")


def test_signals_reach_the_steps_and_the_script(slurm: Cluster, tmp_path: Path) -> None:
    """A signal to the job goes to its steps, one to the script only to the script."""
    script = tmp_path / "job.sh"
    script.write_text(SCRIPT)
    job = slurm.submit("--nodes=2", script)
    slurm.wait_for_output(job, "ready", times=2)
    slurm.signal(job, "USR1", script=True)
    slurm.wait_for_output(job, "script")
    slurm.signal(job, "USR1")

    assert slurm.wait(job)["JobState"] == "COMPLETED"
    assert slurm.output(job).count("step") == 2


def test_a_requeued_job_begins_again(slurm: Cluster) -> None:
    """It says so in SLURM_RESTART_COUNT and keeps its output."""
    run = 'echo run ${SLURM_RESTART_COUNT:-0}; [ -n "$SLURM_RESTART_COUNT" ] || sleep 60'
    job = slurm.submit("--requeue", f"--wrap={run}")
    slurm.wait_for_output(job, "run 0")
    slurm.requeue(job)

    assert slurm.wait(job)["JobState"] == "COMPLETED"
    assert "run 1" in slurm.output(job)
