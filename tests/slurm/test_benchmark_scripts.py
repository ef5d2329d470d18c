# SPDX-License-Identifier: Apache-2.0
"""The benchmark scripts: what they ask Slurm for, what they hand on, what becomes of failures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.loader.programs import wait_until
from tests.slurm.cluster import Cluster
from tests.slurm.stand_ins import BENCHMARK, REPO, SUMMARY, make_repository

pytestmark = pytest.mark.long

SCRIPTS = sorted((REPO / "slurm").glob("*.sh"))
DATA = {"REPO_ID": "me/data", "BUCKET": "s3://a bucket", "WARM_BUCKET": "s3://warm"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_plain_shell(slurm: Cluster, script: Path) -> None:
    """They run under dash; shellcheck, which comes with the cluster, finds nothing to say."""
    first = script.read_text().splitlines()[0]

    assert first == "#!/bin/sh" or script.name == "environment.sh"
    assert slurm.run("shellcheck", "--external-sources", "--shell=sh", script, cwd=REPO) == ""


def run_matrix(slurm: Cluster, folder: Path, **env: str) -> dict[str, int]:
    """Submit a matrix with stand-ins for the programs; return its jobs by name."""
    make_repository(folder, benchmark=BENCHMARK, summary=SUMMARY)
    text = slurm.run(
        *("dash", folder / "slurm" / "run_streaming_matrix.sh", "--floor_s", "0"),
        env=DATA | {"RUN": sys.executable} | env,
        cwd=folder.parent,
    )
    return {name: int(job) for job, name in re.findall(r"^(\d+) (\w+)", text, re.MULTILINE)}


def results(folder: Path) -> list[dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in folder.rglob("*.json")]
    return sorted(found, key=lambda result: float(result["began"]))


def options(result: dict[str, Any]) -> dict[str, str]:
    words = result["arguments"]
    return dict(zip(words[::2], words[1::2], strict=True))


def test_the_matrix_runs_one_job_after_the_other(slurm: Cluster, tmp_path: Path) -> None:
    """3 sources x 2 modes x 2 decoders, each with its own settings, none beside another."""
    jobs = run_matrix(slurm, tmp_path / "here", MEM="1G", CPU_WORKERS="6", OUT_DIR="my results")
    assert slurm.wait(jobs["report"])["JobState"] == "COMPLETED"
    found = results(tmp_path)
    cells = [options(result) for result in found]

    assert len(jobs) == 13
    assert all(a["ended"] <= b["began"] for a, b in pairwise(found))
    names = [f"{c['--source']}_{c['--mode']}_{c['--video_decode_device']}" for c in cells]
    assert [*names, "report"] == list(jobs)
    cpu, gpu = cells[0], cells[-1]
    assert "--data_files_root" not in cpu
    assert (cpu["--num_workers"], cpu["--episode_pool_size"]) == ("6", "64")
    assert (cpu["--max_num_shards"], cpu["--num_batches"]) == ("16", "200")
    assert (gpu["--num_workers"], gpu["--episode_pool_size"]) == ("2", "32")
    assert (gpu["--max_num_shards"], gpu["--data_files_root"]) == ("2", "s3://warm")
    assert cells[4]["--data_files_root"] == "s3://a bucket"
    assert all(cell["--floor_s"] == "0" for cell in cells)
    job = slurm.show(jobs["hub_single_cpu"])
    assert (job["TimeLimit"], job["MinMemoryNode"], job["CPUs/Task"]) == ("01:00:00", "1G", "10")


def test_the_matrix_reports_what_failed_was_killed_or_never_began(
    slurm: Cluster, tmp_path: Path
) -> None:
    """The others are not held up, and the report fails."""
    jobs = run_matrix(
        slurm, tmp_path / "here", SOURCES="hub bucket", DECODES="cpu", FAILS="sarm", LASTS="15"
    )
    slurm.run("scancel", str(jobs["bucket_sarm_cpu"]))
    (note,) = tmp_path.rglob("bucket_single_cpu.failed")
    # Slurm calls a job running before its script has begun.
    assert wait_until(lambda: "was killed" in note.read_text(), timeout_s=300)
    slurm.run("scancel", str(jobs["bucket_single_cpu"]))

    assert slurm.wait(jobs["report"])["JobState"] == "FAILED"
    assert slurm.output(jobs["report"]).splitlines() == [
        "1 results",
        "bucket_sarm_cpu its job never began",
        f"bucket_single_cpu job {jobs['bucket_single_cpu']} was killed",
        f"hub_sarm_cpu job {jobs['hub_sarm_cpu']} ended with exit code 3",
    ]


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_a_job_that_slurm_does_not_take_ends_the_matrix(
    slurm: Cluster, tmp_path: Path, shell: str
) -> None:
    """What sbatch says is seen, and no report is promised. Shells differ on such failures."""
    script = make_repository(tmp_path / "here") / "slurm" / "run_streaming_matrix.sh"
    with pytest.raises(RuntimeError, match="invalid partition specified: nowhere") as caught:
        slurm.run(shell, script, env=DATA | {"PARTITION": "nowhere"})

    assert "report" not in str(caught.value)


@pytest.mark.parametrize("shell", ["dash", "bash"])
def test_the_matrix_asks_for_what_it_needs_before_any_job(tmp_path: Path, shell: str) -> None:
    """Nothing is handed in that could not run."""
    script = make_repository(tmp_path / "here") / "slurm" / "run_streaming_matrix.sh"
    for env, message in (
        ({}, "REPO_ID: want the name of a dataset"),
        ({"REPO_ID": "me/data"}, "BUCKET: want the URL of the bucket, or SOURCES without it"),
        ({"REPO_ID": "me/data", "SOURCES": "hub disk"}, "want SOURCES of hub, bucket"),
    ):
        done = subprocess.run([shell, script], env=env, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        assert message in done.stderr


def test_the_benchmark_runs_on_both_nodes_in_both_modes(slurm: Cluster, tmp_path: Path) -> None:
    """One process on each node, with all cores of its task, results in a folder per node."""
    make_repository(tmp_path / "here", benchmark=BENCHMARK)
    job = slurm.submit(
        "slurm/benchmark_streaming_robocasa.sh",
        env=DATA | {"RUN": sys.executable, "OUT_DIR": "out", "SOURCE": "bucket", "SCRATCH": "/s"},
        cwd=tmp_path / "here",
    )
    assert slurm.wait(job)["JobState"] == "COMPLETED", slurm.output(job)
    found = results(tmp_path / "here" / "out")
    places = {(options(r)["--mode"], r["env"]["SLURMD_NODENAME"]) for r in found}

    assert places == {(mode, node) for mode in ("single", "sarm") for node in ("n1", "n2")}
    for result in found:
        given = options(result)
        assert given["--out_dir"] == f"out/node-{result['env']['SLURM_NODEID']}"
        assert (given["--repo_id"], given["--source"]) == ("me/data", "bucket")
        assert (given["--num_workers"], given["--num_batches"]) == ("12", "300")
        assert result["env"]["HF_HOME"] == "/s/hf_home"
        assert result["env"]["SLURM_CPUS_PER_TASK"] == "16"


def test_a_mode_that_fails_is_a_job_that_fails(slurm: Cluster, tmp_path: Path) -> None:
    """The other mode is still measured."""
    make_repository(tmp_path / "here", benchmark=BENCHMARK)
    job = slurm.submit(
        "slurm/benchmark_streaming_robocasa.sh",
        env=DATA | {"RUN": sys.executable, "OUT_DIR": "out", "FAILS": "single"},
        cwd=tmp_path / "here",
    )

    assert slurm.wait(job)["JobState"] == "FAILED"
    assert {options(r)["--mode"] for r in results(tmp_path)} == {"sarm"}
