# SPDX-License-Identifier: Apache-2.0
"""`robostream diagnose` and the script of LeRobot's name, as processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES, copy_of
from tests.servers.hub import Hub

REPO = Path(__file__).parents[2]
NAME = "av1_multifile"
CAMERA = "observation.images.top"
CLIP = f"videos/{CAMERA}/chunk-000/file-000.mp4"


def run(*command: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, command)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def diagnose(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return run("-m", "robostream.cli.main", "diagnose", *arguments, **environment)


def test_the_report_covers_every_part() -> None:
    """A good dataset exits with 0; the report lists what was seen."""
    done = diagnose(FIXTURES / NAME)

    assert (done.returncode, done.stderr) == (0, "")
    printed = " ".join(done.stdout.split())
    for words in (
        CLIP,
        "66747970",
        "ftypisom",
        "index at the front",
        "codec av1, decoder libdav1d, pixels 4:2:0 8 bit, size 64x48",
        "every 2 frames",
        "largest error 0.000 ms",
        "images/s on one thread",
        "OK: episode 0 decodes",
    ):
        assert words in printed


def test_scripts_read_json_and_the_exit_code(tmp_path: Path) -> None:
    """A Git LFS pointer instead of a video exits with 1, and JSON names it."""
    root = copy_of(NAME, tmp_path)
    (root / CLIP).write_text("version https://git-lfs.github.com/spec/v1\nsize 77\n")
    done = diagnose(root, "--camera", CAMERA, "--json")
    found = json.loads(done.stdout)
    (failed,) = (finding for finding in found["findings"] if finding["verdict"] == "error")

    assert (done.returncode, done.stderr) == (1, "")
    assert list(found["facts"]) == ["dataset", CAMERA]
    assert found["decodes"] is False
    assert failed["id"] == "files"
    assert "Git LFS pointer" in failed["remarks"][0]["what"]


@pytest.mark.parametrize("options", [["--episode", "99"], ["--camera", "left"]])
def test_an_unknown_episode_or_camera_exits_with_2(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Requesting an episode or camera that does not exist is wrong usage."""
    assert main(["diagnose", str(FIXTURES / NAME), *options]) == 2

    assert f"there is no {options[0].removeprefix('--')} {options[1]}" in capsys.readouterr().err


@pytest.mark.parametrize("written", ["./nowhere", "~/nowhere", "./empty"])
def test_a_missing_path_is_reported_as_info_reports_it(
    written: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A path is not looked up on the Hub, and both commands name it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "empty").mkdir()
    assert main(["info", written]) == 1
    printed = capsys.readouterr().err.removeprefix("robostream info: ")
    assert main(["diagnose", written, "--json"]) == 1
    found = json.loads(capsys.readouterr().out)["findings"]

    assert found[0]["remarks"][0]["what"] == printed.strip()
    assert "meta/info.json: not found" in printed


@pytest.mark.long
def test_hub_datasets_are_read_and_wrong_revisions_explained(hub: Hub, tmp_path: Path) -> None:
    """A dataset on the Hub is read there; for a missing revision, the existing ones are listed."""
    commit = hub.add_repo("lab/cups").commit(FIXTURES / NAME, tags=["v3.0"])
    home = {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path),
        "HF_LEROBOT_HOME": str(tmp_path / "lerobot"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
    good = diagnose("lab/cups", "--json", **home)
    wrong = diagnose("lab/cups", "--revision", "side", **home)

    assert good.returncode == 0, good.stderr
    figures = json.loads(good.stdout)
    assert figures["dataset"] == f"hf://datasets/lab/cups@{commit}"
    assert figures["facts"]["dataset"]["version"]["revision"] == commit
    assert wrong.returncode == 1
    assert "no revision 'side'" in wrong.stdout
    assert "branches and tags are main, v3.0" in " ".join(wrong.stdout.split())


@pytest.mark.long
def test_the_script_accepts_lerobots_flags(tmp_path: Path) -> None:
    """The script does the same as the command, with LeRobot's flags."""
    script = REPO / "benchmarks" / "streaming" / "diagnose_decode.py"
    videos = copy_of(NAME, tmp_path)
    flags = ["--root", FIXTURES / NAME, "--data_files_root", videos, "--episode", "1"]
    done = run(script, "--repo_id", "lab/cups", *flags, "--video_decode_device", "cpu")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(str(videos))
    assert "OK: episode 1 decodes" in done.stdout
