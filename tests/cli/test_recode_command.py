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
from tests.loader.programs import without_progress

ROOT = str(FIXTURES / "av1_multifile")


def test_the_report_describes_the_copy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json, it has the encoding, sizes before and after, and the checks."""
    code = main(["recode", ROOT, str(tmp_path / "copy"), "--codec", "h264", "--jobs", "2"])
    printed = capsys.readouterr().out

    assert code == 0
    assert "6 video files, 124 frames, re-encoded: h264, a key frame every 2, crf 18" in printed
    assert "observation.images.top: 14.0 KiB -> " in printed
    assert "other files: " in printed
    assert "checked: every video has the frames and times of its original" in printed


@pytest.mark.long
def test_stdout_has_only_json(tmp_path: Path) -> None:
    """With --json, stdout has the same report and no messages of encoders."""
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
    assert without_progress(done.stderr) == ""


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
def test_wrong_usage_is_explained(
    arguments: list[str],
    code: int,
    complaint: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong usage exits with 2, unsuitable folders with 1; nothing is written."""
    given = [str(tmp_path / "copy") if text == "COPY" else text for text in arguments]
    try:
        returned = main(["recode", *given])
    except SystemExit as stopped:  # argparse's own complaint
        returned = int(stopped.code or 0)

    assert returned == code
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
