# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import subprocess
import sys


def test_a_size_is_measured_in_a_process_of_its_own() -> None:
    """The child process prints every figure of the table as JSON, and carries no torch."""
    command = [sys.executable, "-m", "robostream.bench.plan", "60000", "1"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    figures = json.loads(answer.stdout)

    assert figures["episodes"] == 200
    assert all(value > 0 for value in figures.values())
    assert figures["peak_rss_mb"] < 150
