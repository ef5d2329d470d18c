# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]


def run(*arguments: str) -> list[str]:
    command = [sys.executable, "-m", "tests.write.killed_recordings", *arguments]
    result = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=600)

    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.splitlines()


def test_saved_episodes_survive_kill_9_at_random_moments(tmp_path: Path) -> None:
    """A recording killed 24 times and resumed holds every episode whose save_episode returned."""
    kills = run("random", str(tmp_path), "24")

    assert len(kills) == 24


def test_saved_episodes_survive_a_kill_before_every_change_of_a_name(tmp_path: Path) -> None:
    """Killed before any one rename, folder or deletion of two sessions: nothing saved is lost."""
    steps = run("steps", str(tmp_path))

    assert len(steps) > 80
    assert steps[-1].endswith("3 reported, 3 found")


def test_excluding_an_episode_survives_a_kill_before_every_change_of_a_name(
    tmp_path: Path,
) -> None:
    """A resume that is killed while it excludes a damaged episode is completed by the next one."""
    steps = run("bad", str(tmp_path))

    assert len(steps) > 60
