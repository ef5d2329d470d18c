# SPDX-License-Identifier: Apache-2.0
"""Compare the loader's speed with several versions of PyAV, which take turns in each round.

  PYTHON scripts/bench_pyav_versions.py [VERSION ...]

PYTHON has robostream and its dependencies. Python 3.12 has wheels of all versions, so the
environment of `make bench-peers` works. PyAV is installed into a temporary folder. The table is
that of `compare_versions.py`; the first version is the reference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

VERSIONS = ("18.1.0", "15.1.0", "19.0.2")
HERE = Path(__file__).resolve().parent
OPTIONS = ("--rounds", "3", "--cases", "single", "sarm")


def main(versions: list[str]) -> None:
    """Install the versions and compare them."""
    with tempfile.TemporaryDirectory() as folder:
        for version in versions:
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            what = ["--no-deps", "--only-binary", "av", "--target", f"{folder}/{version}"]
            subprocess.run([*pip, *what, f"av=={version}"], check=True)
        sources = HERE.with_name("src")
        trees = [os.pathsep.join([f"{folder}/{version}", str(sources)]) for version in versions]
        command = [sys.executable, str(HERE / "compare_versions.py"), *trees, *OPTIONS]
        subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(VERSIONS))
