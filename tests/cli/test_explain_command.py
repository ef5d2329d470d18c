# SPDX-License-Identifier: Apache-2.0
"""`robostream explain` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from robostream.cli.main import main
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import blind_stream, open_loader

AV1 = str(FIXTURES / "av1_multifile")


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """A state after three steps, the frames of all steps, and a log of the order."""
    loader = open_loader(blind_stream(), 4)
    (tmp_path / "state.json").write_text(json.dumps(loader.state_dict()))
    batches = [sorted(batch["index"].tolist()) for batch in loader]
    (tmp_path / "batches.json").write_text(json.dumps(batches))
    log = ["--batch-size", "4", "--log", str(tmp_path / "order.jsonl")]
    assert main(["order", AV1, *log]) == 0
    return tmp_path


def arguments(folder: Path, *more: str, dataset: str = AV1) -> list[str]:
    state = str(folder / "state.json")
    return ["explain", dataset, "--state", state, "--batch-size", "4", "--step", "3", *more]


def test_the_program_explains_a_batch_of_a_remote_dataset(run_folder: Path) -> None:
    """Samples, files and byte ranges as JSON, and a contact sheet."""
    sheet = run_folder / "sheet.png"
    with serve_files(FIXTURES) as url:
        options = arguments(
            run_folder, "--json", "--png", str(sheet), dataset=f"{url}/av1_multifile"
        )
        command = [sys.executable, "-m", "robostream", *options]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    (delivered,) = json.loads((run_folder / "batches.json").read_text())[3:4]

    assert done.returncode == 0, done.stderr
    assert sorted(sample["index"] for sample in found["samples"]) == delivered
    assert (found["start"], found["stop"], found["steps"]) == (12, 16, 16)
    features = {source["feature"] for source in found["samples"][0]["sources"]}
    assert features == {"rows", "observation.images.top", "observation.images.wrist"}
    with Image.open(sheet) as image:
        assert image.width > 4 * 2 * 120


def test_the_tables_name_samples_and_files(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At most so many samples as wanted."""
    capsys.readouterr()
    assert main(arguments(run_folder, "--most", "3")) == 0
    printed = capsys.readouterr().out

    assert "step 3 of 16 of epoch 0: positions 12 to 15, 4 samples" in printed
    assert "... 1 more" in printed
    assert "data/chunk-000/file-00" in printed
    assert "videos/observation.images.wrist/chunk-000/file-00" in printed


def test_a_log_confirms_or_contradicts(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 0 if the run delivered these frames, 1 if others or if the log does not say."""
    log = run_folder / "order.jsonl"
    capsys.readouterr()
    assert main(arguments(run_folder, "--log", str(log))) == 0
    assert "confirms it" in capsys.readouterr().out
    lines = log.read_text().splitlines()
    changed = json.loads(lines[4]) | {"receipt": "0123456789abcdef"}
    log.write_text("\n".join([*lines[:4], json.dumps(changed), *lines[5:]]))
    assert main(arguments(run_folder, "--log", str(log), "--json")) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["is_confirmed"] is False
    assert found["delivered"] != found["digest"]
    assert main(arguments(run_folder, "--log", str(log))) == 1
    assert "CONTRADICTS" in capsys.readouterr().out
    assert main(arguments(run_folder, "--log", str(log), "--epoch", "5")) == 1
    assert "does not say" in capsys.readouterr().out


def test_a_log_confirms_a_run_that_resumed_with_another_batch(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its steps are counted from the position of the state that it resumed from."""
    log = run_folder / "order.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([*lines[:2], *lines[4::3]]))  # steps that end at 4, 16, 28 ...
    wide = arguments(run_folder, "--log", str(log), "--batch-size", "12", "--step", "1")
    capsys.readouterr()

    assert main(wide) == 1
    assert "(--from)" in capsys.readouterr().out
    assert main([*wide, "--from", "4"]) == 0
    assert "counted from position 4: positions 16 to 27" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "code", "message"),
    [
        (["--step", "16"], 2, "there is no step 16"),
        (["--episodes", "1"], 1, "selection of episodes"),
        (["--log", "nowhere.jsonl"], 1, "not a log of an order"),
        (["--state", "nowhere.json"], 1, "want a state"),
    ],
)
def test_errors_are_one_line(
    more: list[str],
    code: int,
    message: str,
    run_folder: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each names what was wanted."""
    capsys.readouterr()
    assert main(arguments(run_folder, *more)) == code

    assert message in capsys.readouterr().err


def test_the_batch_size_must_be_given(run_folder: Path) -> None:
    """A wrong one would silently show another batch."""
    with pytest.raises(SystemExit) as stop:
        main(["explain", AV1, "--state", str(run_folder / "state.json"), "--step", "3"])

    assert stop.value.code == 2
