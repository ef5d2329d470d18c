# SPDX-License-Identifier: Apache-2.0
"""The whole matrix with the real benchmark, on tiny data."""

from __future__ import annotations

import csv
import json
import re
import sys
from pathlib import Path

import pytest

from tests.fixture_datasets import FIXTURES
from tests.slurm.cluster import Cluster

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
DATA = FIXTURES / "av1_multifile"
# There is no GPU here: this runs a program with "cuda" read as "cpu". One measurement is killed, as
# by a kernel that is out of memory.
WITHOUT_GPU = """
import os, runpy, signal, sys
if {"warmed_bucket", "sarm", "cuda"} <= set(sys.argv):
    os.kill(os.getpid(), signal.SIGKILL)
sys.argv = ["cpu" if word == "cuda" else word for word in sys.argv[1:]]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_eleven_measurements_and_a_failure_are_reported(slurm: Cluster, tmp_path: Path) -> None:
    """12 jobs, of which one is killed: the summary has all others, and names that one."""
    (tmp_path / "without_gpu.py").write_text(WITHOUT_GPU)
    text = slurm.run(
        *("dash", "slurm/run_streaming_matrix.sh", "--floor_s", "0", "--warmup_batches", "1"),
        cwd=REPO,
        env={
            "RUN": f"{sys.executable} {tmp_path}/without_gpu.py",
            "PYTHONPATH": str(REPO / "src"),
            "OUT_DIR": str(tmp_path / "out"),
            "REPO_ID": "me/data",
            **dict.fromkeys(("ROOT", "BUCKET", "WARM_BUCKET"), str(DATA)),
            **{"NUM_BATCHES": "4", "BATCH_SIZE": "8", "CPU_WORKERS": "1", "GPU_WORKERS": "1"},
            "SERIAL": "0",  # nobody looks at how fast they were
        },
    )
    jobs = {name: int(job) for job, name in re.findall(r"^(\d+) (\w+)", text, re.MULTILINE)}
    report = slurm.wait(jobs["report"])
    output = slurm.output(jobs["report"])
    logs = "\n".join(path.read_text() for path in (tmp_path / "out").rglob("*.log"))
    found = [json.loads(path.read_text()) for path in (tmp_path / "out").rglob("*.json")]
    (summary,) = (tmp_path / "out").rglob("summary.csv")

    assert report["JobState"] == "FAILED", output
    assert len(jobs) == 13
    assert len(found) == 11, logs
    assert all(figures["frames_measured"] == 32 for figures in found)
    with summary.open() as rows:
        assert len(list(csv.DictReader(rows))) >= 11
    assert "warmed_bucket_sarm_cuda" in output
    assert f"job {jobs['warmed_bucket_sarm_cuda']} ended with exit code 137" in output
