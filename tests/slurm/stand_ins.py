# SPDX-License-Identifier: Apache-2.0
"""A folder like the repository, with small programs in place of those the batch scripts call.

What the scripts do around a program (restarts, exit codes, lists of jobs) is tested with programs
that end as the test wants, at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path

REPO = Path(__file__).parents[2]
_PATHS = {
    "benchmark": Path("benchmarks/streaming/benchmark_streaming.py"),
    "summary": Path("benchmarks/streaming/summarize_results.py"),
    "training": Path("examples/scaling/train_streaming_multinode.py"),
}

# Notes its arguments and ends as ENDS says, one word for each start of the job: a number is an exit
# code, "wait" waits for a signal and then ends with 75 as the training program does.
TRAINING = """
import os, pathlib, signal, sys, time
rank, start = os.environ["SLURM_PROCID"], int(os.environ.get("SLURM_RESTART_COUNT", 0))
pathlib.Path(f"start-{start}-rank-{rank}").write_text("\\n".join(sys.argv[1:]))
end = os.environ["ENDS"].split()[start]
if end == "wait":
    told = []
    for number in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda number, frame: told.append(number))
    print("ready", flush=True)
    while not told:
        time.sleep(0.05)
    time.sleep(0.3 * int(rank))  # one process ends after the other
    end = 75
sys.exit(int(end))
"""

# Notes its arguments in the folder for results, takes as long as LASTS says, and fails where
# FAILS is among the arguments.
BENCHMARK = """
import json, os, pathlib, sys, time
folder = pathlib.Path(sys.argv[sys.argv.index("--out_dir") + 1])
folder.mkdir(parents=True, exist_ok=True)
began = time.time()
time.sleep(float(os.environ.get("LASTS", 0)))
if os.environ.get("FAILS") in sys.argv:
    sys.exit(3)
report = {"arguments": sys.argv[1:], "began": began, "ended": time.time(), "env": dict(os.environ)}
name = "-".join(os.environ.get(f"SLURM_{part}_ID", "") for part in ("JOB", "STEP"))
(folder / f"{name}.json").write_text(json.dumps(report))
"""
SUMMARY = """
import pathlib, sys
folder = pathlib.Path(sys.argv[1])
failed = sorted(folder.glob("*.failed"))
print(len(list(folder.glob("*.json"))), "results")
for path in failed:
    print(path.stem, path.read_text().strip())
sys.exit(bool(failed))
"""


def make_repository(folder: Path, **programs: str) -> Path:
    """Return a folder with the batch scripts and these programs where the scripts look for them."""
    shutil.copytree(REPO / "slurm", folder / "slurm")
    for name, text in programs.items():
        path = folder / _PATHS[name]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
