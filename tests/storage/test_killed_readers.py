# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]


def test_a_cache_survives_readers_that_are_killed(tmp_path: Path) -> None:
    """While 2 of 4 processes are killed, the others read exact bytes and the limit holds."""
    command = [sys.executable, "-m", "tests.storage.killed_readers", str(tmp_path), "5"]
    result = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=600)

    assert result.returncode == 0, result.stdout + result.stderr
    assert len(result.stdout.splitlines()) == 5
