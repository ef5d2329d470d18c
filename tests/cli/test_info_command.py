# SPDX-License-Identifier: Apache-2.0
"""`robostream info` from the command line, as text and as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream import LeRobotDataset
from robostream.cli.main import main
from robostream.errors import MetadataError
from robostream.meta import LeRobotDatasetMetadata
from robostream.write import create_writer
from tests.fixture_datasets import ALL_NAMES, FIXTURES, copy_of, edit_info
from tests.servers.hub import Hub


def info(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    command = [sys.executable, "-m", "robostream.cli.main", "info", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, **options)


def as_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """Run the command in this process, which is faster, and parse its output."""
    assert main(["info", *map(str, arguments), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def cells(text: str, first: str) -> list[str]:
    """Return the cells of the line that starts with a word."""
    line = next(line for line in text.splitlines() if line.startswith(f"{first} "))
    return [cell for cell in line.split("  ") if cell]


def test_the_text_shows_the_whole_dataset() -> None:
    """It has counts, tasks, features, cameras, files and the first episodes."""
    done = info(FIXTURES / "depth", "--episodes", 1)

    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done.stdout, "version") == ["version", "v3.0"]
    assert cells(done.stdout, "frames")[1].strip() == "20 at 10 fps"
    assert "1: open the drawer" in done.stdout
    assert "1 Parquet, 2 MP4; 30.7 KiB" in done.stdout
    assert "observation.grid        float64  2x3" in done.stdout
    assert "depth in mm  video      64x48  hevc   gray12le  every 2    30" in done.stdout
    assert done.stdout.splitlines()[-1].split() == [
        *("0", "12", "1.2", "0", "data/chunk-000/file-000.parquet"),
        *("stack", "the", "cups"),
    ]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_json_equals_the_metadata_of_the_library(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """JSON holds info.json's fields, the fingerprint, and the size of the files."""
    meta = LeRobotDatasetMetadata(name, root=FIXTURES / name)
    found = as_json(capsys, FIXTURES / name, "--episodes", 2)
    files = [p for kind in ("parquet", "mp4") for p in (FIXTURES / name).glob(f"[dv]*/**/*.{kind}")]

    assert {key: found[key] for key in meta.info.to_dict()} == meta.info.to_dict()
    assert found["tasks"] == meta.tasks.index
    assert found["fingerprint"] == meta.fingerprint
    assert list(found["cameras"]) == meta.camera_keys
    assert found["episodes"] == meta.episodes[:2]
    assert found["files"]["parquet"] + found["files"]["mp4"] == len(files)
    assert found["files"]["size_bytes"] == sum(path.stat().st_size for path in files)


def test_repo_id_prefers_the_hub_to_a_folder(hub: Hub, tmp_path: Path) -> None:
    """--repo-id reads from the Hub although a local folder has the same name."""
    commit = hub.add_repo("lab/cups").commit(FIXTURES / "images", tags=["v3.0"])
    shutil.copytree(FIXTURES / "depth", tmp_path / "lab/cups")
    home = tmp_path / "home"
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(home),
        "HF_LEROBOT_HOME": str(home / "lerobot"),
    }
    done = info("lab/cups", "--repo-id", "--json", cwd=tmp_path, env=environment)
    found = json.loads(done.stdout)

    assert found["dataset"] == f"hf://datasets/lab/cups@{commit}"
    assert found["revision"] == commit
    assert found["total_frames"] == 27
    assert found["files"] is None


def test_a_recording_in_progress_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before finalize() the dataset has no episodes, and the command says why."""
    features = {"observation.state": {"dtype": "float32", "shape": (2,), "names": None}}
    writer = create_writer(tmp_path / "new", fps=10, features=features)
    writer.add_frame({"observation.state": np.zeros(2, np.float32), "task": "wait"})
    writer.save_episode()
    before = as_json(capsys, tmp_path / "new", "--episodes", 3)
    assert main(["info", str(tmp_path / "new")]) == 0
    text = capsys.readouterr().out
    with pytest.raises(MetadataError, match=r"no episodes\. Its saved episodes wait for finaliz"):
        LeRobotDataset("x", root=tmp_path / "new")
    writer.finalize()
    after = as_json(capsys, tmp_path / "new")

    assert (before["total_episodes"], before["episodes"]) == (0, [])
    assert before["unfinished_recording"]
    assert "recording    not finished" in text
    assert (after["total_episodes"], after["unfinished_recording"]) == (1, False)


def test_a_partial_copy_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The size of a copy without its videos is unknown."""
    root = copy_of("av1_multifile", tmp_path)
    shutil.rmtree(root / "videos")
    found = as_json(capsys, root)

    assert found["files"] == {"parquet": 3, "mp4": 6, "size_bytes": None}


def test_no_dataset_exits_with_1(tmp_path: Path) -> None:
    """The error names the missing folder; stdout stays empty."""
    done = info("./nowhere", cwd=tmp_path)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"robostream info: {tmp_path}/nowhere/meta/info.json: not found")
    assert "Traceback" not in done.stderr


def test_an_old_dataset_exits_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the library's message, with its cure."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda content: content.update(codebase_version="v1.6"))

    assert main(["info", str(root)]) == 1
    assert "v1.6" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["x", "--episodes", "0"], ["x", "--frames"]])
def test_a_wrong_call_exits_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage reads nothing."""
    with pytest.raises(SystemExit) as stopped:
        main(["info", *arguments])

    assert stopped.value.code == 2
    assert "usage: robostream" in capsys.readouterr().err
