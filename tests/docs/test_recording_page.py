# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/recording.md do what the page says."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from robostream import LeRobotDataset

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"


def run(program: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_killed_recording_is_resumed_and_finalized(tmp_path: Path) -> None:
    """The first program is killed while it records; the second recovers its episodes."""
    record, resume, _ = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)
    frame = record[record.index("recording.add_frame") : record.index("    recording.save_episode")]
    killed = f"{record}\n{frame}\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"

    first = run(killed.replace("8 * step", "0"), tmp_path)
    assert first.returncode == -signal.SIGKILL, first.stderr

    second = run(resume, tmp_path)
    assert second.returncode == 0, second.stderr
    assert second.stdout == "2 episodes were saved\n"
    assert LeRobotDataset("me/towels", root=tmp_path / "towels").num_frames == 60
