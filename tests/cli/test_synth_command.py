# SPDX-License-Identifier: Apache-2.0
"""`robostream synth` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.cli.main import main
from tests.loader.programs import without_progress

SMALL = ["--episodes", "2", "--frames", "6:9", "--cameras", "1", "--size", "64x48", "--seed", "3"]


def test_the_report_describes_the_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without --json, it has episodes, files and bitrates."""
    code = main(["synth", str(tmp_path / "a"), *SMALL, "--codec", "h264", "--gop", "10"])
    printed = capsys.readouterr().out

    assert code == 0
    assert "2 episodes" in printed
    assert "files: 1 of rows, 1 of video; " in printed
    assert "observation.images.front: " in printed
    assert "kbit/s" in printed


def test_stdout_has_only_json(tmp_path: Path) -> None:
    """With --json, stdout has the same report and no messages of encoders."""
    dest = tmp_path / "b"
    command = [sys.executable, "-m", "robostream.cli.main", "synth", str(dest), *SMALL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)
    info = json.loads((dest / "meta" / "info.json").read_text())

    assert report["path"] == str(dest)
    assert (report["episodes"], report["frames"]) == (2, info["total_frames"])
    assert info["features"]["observation.images.front"]["shape"] == [48, 64, 3]
    assert report["camera_kbit_per_s"]["observation.images.front"] > 0
    assert without_progress(done.stderr) == ""


def test_a_full_folder_is_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A destination in use exits with 1 and says so."""
    (tmp_path / "mine.txt").write_text("")

    assert main(["synth", str(tmp_path), *SMALL]) == 1
    assert "not empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--frames", "many"], "want MIN:MAX"),
        (["--size", "64"], "want WIDTHxHEIGHT"),
        (["--size", "31x31"], "even and 32 or more"),
        (["--codec", "divx"], "divx"),
        (["--preset", "nonsense"], "the encoder libsvtav1 refuses"),
        (["--cameras", "9"], "1 to 6 cameras"),
    ],
)
def test_a_wrong_call_exits_with_2(
    options: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Impossible options are explained before anything is written."""
    try:
        code = main(["synth", str(tmp_path / "c"), *options])
    except SystemExit as stopped:  # argparse's own complaint
        code = int(stopped.code or 0)

    assert code == 2
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
