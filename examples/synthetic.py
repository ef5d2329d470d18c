# SPDX-License-Identifier: Apache-2.0
"""Synthetic datasets."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def make_dataset(dest: Path, **options: object) -> Path:
    """Make a dataset of a simulated arm with `robostream synth`; return its folder."""
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "robostream", "synth", str(dest), *words]
    subprocess.run(command, check=True, stdout=sys.stderr)
    return dest
