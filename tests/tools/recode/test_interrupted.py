# SPDX-License-Identifier: Apache-2.0
"""A killed or interrupted run leaves no partial copy, and the next run resumes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from robostream.errors import WriteError
from robostream.tools import RecodeSpec, SynthSpec, make_dataset, recode_dataset
from tests.loader.programs import TAKES_CTRL_C, without_progress
from tests.tools.recode.copies import assert_same_items

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def many_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of eight video files, so that a run takes a while after the first."""
    root = tmp_path_factory.mktemp("recode") / "many"
    spec = SynthSpec(
        episodes=8,
        distinct=1,
        min_frames=270,
        max_frames=270,
        cameras=1,
        width=128,
        height=128,
        codec="h264",
        gop=60,
        video_file_mb=0.001,
    )
    make_dataset(root, spec)
    return root


def start(root: Path, copy: Path) -> subprocess.Popen[str]:
    """Start the command and wait until it has finished a file."""
    command = [sys.executable, "-m", "robostream.cli.main", "recode", str(root), str(copy)]
    process = subprocess.Popen(
        # What is to be stopped in the middle gets less of a busy machine than who stops it.
        ["nice", "-n", "19", *TAKES_CTRL_C, *command, "--jobs", "2"],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while not finished(copy):
        assert process.poll() is None
        time.sleep(0.005)
    return process


def finished(copy: Path) -> dict[Path, int]:
    """Return the finished files of an unfinished copy, and when each was written."""
    staging = copy.with_name(f"{copy.name}.recoding")
    return {path: path.stat().st_mtime_ns for path in staging.rglob("*.mp4")}


def children_of(process: int) -> list[int]:
    return [
        int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()
    ]


def lives(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_run_resumes(how: signal.Signals, many_files: Path, tmp_path: Path) -> None:
    """No copy and no process is left; the next run keeps finished files and completes the copy."""
    copy = tmp_path / "copy"
    process = start(many_files, copy)
    children = children_of(process.pid)
    if how == signal.SIGINT:
        os.killpg(process.pid, how)  # as a terminal does: all processes get it
    else:
        process.send_signal(how)
    _, errors = process.communicate()
    while any(map(lives, children)):
        time.sleep(0.01)  # a hang fails by the suite's time limit
    done = finished(copy)
    again = recode_dataset(many_files, copy, RecodeSpec(), jobs=2)

    assert not copy.with_name("copy.recoding").exists()
    if how == signal.SIGINT:
        assert (process.returncode, without_progress(errors)) == (130, "robostream: interrupted\n")
    assert 1 <= len(done) < 8
    assert again.kept_files == len(done)
    for path, written in done.items():
        name = path.relative_to(tmp_path / "copy.recoding" / "dataset")
        assert (copy / name).stat().st_mtime_ns == written
    assert_same_items(many_files, copy, at_least_db=38)


def test_two_runs_do_not_share_a_copy(many_files: Path, tmp_path: Path) -> None:
    """While one works, another raises and changes nothing."""
    process = start(many_files, tmp_path / "copy")
    with pytest.raises(WriteError, match="another run is using this folder"):
        recode_dataset(many_files, tmp_path / "copy", RecodeSpec())
    _, errors = process.communicate()

    assert (process.returncode, without_progress(errors)) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]
