# SPDX-License-Identifier: Apache-2.0
"""Compare the loader's speed with several versions of PyAV, which take turns in each round.

  PYTHON scripts/bench_pyav_versions.py [VERSION ...]

PYTHON has robostream and its dependencies. Python 3.12 has wheels of all versions, so the
environment of `make bench-peers` works. PyAV is installed into a temporary folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import median

from robostream.bench import format_table, run_rounds
from robostream.bench.loader import CASES, measure_robostream
from robostream.bench.measure import BenchCase
from robostream.bench.processes import run_process
from robostream.loader import share_of_cores

VERSIONS = ("15.1.0", "18.1.0", "19.0.2")
REFERENCE = "18.1.0"
ROUNDS = 3
SECONDS = 12.0
SOURCES = Path(__file__).resolve().parents[1] / "src"


def main(versions: list[str]) -> None:
    """Install, measure and print a table."""
    workers = share_of_cores(1)
    cases = [replace(case, workers=workers) for case in CASES if case.name in ("single", "sarm")]
    with tempfile.TemporaryDirectory() as folder:
        for version in versions:
            install(version, Path(folder, version))
        runs = {
            (case.name, version): partial(measure, case, version, Path(folder, version))
            for case, version in product(cases, versions)
        }
        rates = run_rounds(runs, ROUNDS)
    reference = REFERENCE if REFERENCE in versions else versions[-1]
    rows = [
        [name, version, median(own), median(own) / median(rates[name, reference])]
        for (name, version), own in rates.items()
    ]
    print(format_table(["case", "PyAV", "images/s", f"over PyAV {reference}"], rows))


def measure(case: BenchCase, version: str, folder: Path) -> float:
    """Print and return images/s with the PyAV that a folder holds."""
    paths = os.pathsep.join([str(folder), str(SOURCES)])
    found = run_process(
        measure_robostream, environment={"PYTHONPATH": paths}, case=case, seconds=SECONDS
    )
    print(case.name, version, round(found["images_per_s"]), flush=True)
    return float(found["images_per_s"])


def install(version: str, folder: Path) -> None:
    """Install a version of PyAV into a folder."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    what = ["--no-deps", "--only-binary", "av", "--target", str(folder), f"av=={version}"]
    subprocess.run([*pip, *what], check=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(VERSIONS))
