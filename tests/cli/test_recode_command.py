# SPDX-License-Identifier: Apache-2.0
"""`robostream recode` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES

ROOT = str(FIXTURES / "av1_multifile")


def test_it_says_what_it_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json a person reads what was done, sizes before and after, and what was checked."""
    code = main(["recode", ROOT, str(tmp_path / "copy"), "--codec", "h264", "--jobs", "2"])
    printed = capsys.readouterr().out

    assert code == 0
    assert "6 video files, 124 frames, re-encoded: h264, a key frame every 2, crf 18" in printed
    assert "observation.images.top: 14.0 KiB -> " in printed
    assert "other files: " in printed
    assert "checked: every video has the frames and times of its original" in printed


def test_json_is_all_that_goes_to_stdout(tmp_path: Path) -> None:
    """With --json a script reads the same, alone on stdout even when encoders talk."""
    command = [sys.executable, "-m", "robostream.cli.main", "recode", ROOT, str(tmp_path / "copy")]
    options = ["--codec", "libsvtav1", "--gop", "4", "--crf", "30", "--json"]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    report = json.loads(done.stdout)

    assert report["spec"] == {"codec": "libsvtav1", "gop": 4, "crf": 30}
    assert report["frames"] == 124
    assert report["psnr_db"] > 30
    for key, (before, after) in report["camera_bytes"].items():
        files = (tmp_path / "copy" / "videos" / key).rglob("*.mp4")
        assert after == sum(path.stat().st_size for path in files)
        assert before > 0
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        ([ROOT, "COPY", "--codec", "divx"], 2, "invalid choice: 'divx'"),
        ([ROOT, "COPY", "--gop", "0"], 2, "whole number above 0"),
        ([ROOT, "COPY", "--crf", "99"], 2, "crf of 0 to 51"),
        ([str(FIXTURES / "images"), "COPY"], 2, "nothing to encode"),
        ([str(FIXTURES), "COPY"], 1, "no LeRobot dataset"),
        (["lerobot/pusht", "COPY"], 1, "hf download lerobot/pusht"),
        ([ROOT, f"{ROOT}/copy"], 1, "inside it"),
        ([ROOT, ROOT], 1, "exists"),
    ],
)
def test_a_wrong_call_is_told(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong calls exit with 2, places that cannot be with 1, and nothing is written."""
    given = [str(tmp_path / "copy") if text == "COPY" else text for text in arguments]
    try:
        returned = main(["recode", *given])
    except SystemExit as stopped:  # argparse's own complaint
        returned = int(stopped.code or 0)

    assert returned == code
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
