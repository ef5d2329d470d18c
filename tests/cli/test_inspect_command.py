# SPDX-License-Identifier: Apache-2.0
"""`robostream inspect` from the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from robostream.cli.main import main
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES, copy_of
from tests.servers.hub import Hub

AV1 = str(FIXTURES / "av1_multifile")


def test_the_program_writes_a_page_and_a_sheet(tmp_path: Path) -> None:
    """Of a remote dataset; the exit code is 0 and both files are named."""
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.png"
    with serve_files(FIXTURES) as url:
        command = [sys.executable, "-m", "robostream", "inspect", f"{url}/av1_multifile"]
        command += ["--episode", "1", "--html", str(page), "--png", str(sheet)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [f"written to {page}", f"written to {sheet}"]
    assert "Episode 1" in page.read_text()
    with Image.open(sheet) as image:
        assert image.width > 9 * 200


def test_a_local_dataset_gets_the_viewers_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the page and in the terminal; cameras can be chosen."""
    page = tmp_path / "page.html"
    options = ["--cameras", "observation.images.top", "--html", str(page)]
    assert main(["inspect", AV1, *options]) == 0
    command = f"lerobot-dataset-viz --repo-id local/av1_multifile --root {AV1} --episode-index 0"

    assert command in capsys.readouterr().out
    assert command in page.read_text()
    assert "<h3>observation.images.wrist</h3>" not in page.read_text()


@pytest.mark.long
def test_a_dataset_on_the_hub_gets_its_name(hub: Hub, tmp_path: Path) -> None:
    """LeRobot's viewer downloads it by that name."""
    hub.add_repo("lab/cups").commit(FIXTURES / "images", tags=["v3.0"])
    home = {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_HUB_DISABLE_TELEMETRY": "1"}
    command = [sys.executable, "-m", "robostream", "inspect", "lab/cups"]
    command += ["--html", str(tmp_path / "page.html")]
    done = subprocess.run(
        command, env=os.environ | home, capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr
    assert "lerobot-dataset-viz --repo-id lab/cups --episode-index 0" in done.stdout
    assert "<h1>lab/cups</h1>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "want --html PAGE, --png SHEET or both"),
        (["--html", "p.html", "--episode", "77"], "there is no episode 77"),
        (["--html", "p.html", "--cameras", "left"], "--cameras names left"),
    ],
)
def test_wrong_usage_exits_with_2_and_writes_nothing(
    options: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Something to write, an episode and cameras that are there."""
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["inspect", AV1, *options])
    except SystemExit as stop:
        code = int(str(stop.code))

    assert code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_unreadable_camera_exits_with_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is written and shows the reason; a sheet is not."""
    root = copy_of("av1_multifile", tmp_path)
    (root / "videos/observation.images.wrist/chunk-000/file-000.mp4").write_bytes(b"no video")
    page, sheet = tmp_path / "page.html", tmp_path / "sheet.png"
    assert main(["inspect", str(root), "--html", str(page)]) == 1
    assert main(["inspect", str(root), "--png", str(sheet)]) == 1

    assert "file-000.mp4" in page.read_text()
    assert "file-000.mp4" in capsys.readouterr().err
    assert not sheet.exists()
