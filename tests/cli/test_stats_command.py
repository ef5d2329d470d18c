# SPDX-License-Identifier: Apache-2.0
"""`robostream stats` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from robostream import LeRobotDataset
from robostream.cli.main import main
from robostream.meta import LeRobotDatasetMetadata
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES, copy_of

AV1 = str(FIXTURES / "av1_multifile")


def test_the_table_has_a_row_for_each_dimension(capsys: pytest.CaptureFixture[str]) -> None:
    """Recorded names, exact quantiles, and how stats.json compares."""
    assert main(["stats", AV1]) == 0
    printed = capsys.readouterr().out

    assert printed.splitlines()[0].split()[:4] == ["feature", "min", "max", "mean"]
    assert [f"observation.state j{n} " in printed for n in range(6)] == [True] * 6
    assert "62 frames of 5 of 5 episodes" in printed
    assert "min, max, mean and std agree with meta/stats.json" in printed
    assert "quantiles differ by" in printed


def test_a_selection_is_not_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """stats.json is about all episodes; a range does not include its end."""
    assert main(["stats", AV1, "--episodes", "0:2", "4", "--features", "action"]) == 0
    printed = capsys.readouterr().out

    assert "of 3 of 5 episodes" in printed
    assert "stats.json" not in printed
    assert "observation.state" not in printed


def test_scripts_read_all_statistics_as_json() -> None:
    """The program as a whole, on a remote dataset; the form is that of stats.json."""
    with serve_files(FIXTURES) as url:
        command = [sys.executable, "-m", "robostream", "stats", f"{url}/av1_multifile", "--json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(done.stdout)
    wanted = LeRobotDataset(AV1).compute_stats()

    assert done.returncode == 0, done.stderr
    assert list(found) == list(wanted)
    for key, entry in wanted.items():
        for name, value in entry.items():
            assert found[key][name] == value.tolist()


def test_stale_statistics_are_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison says that they differ; after writing them, they agree."""
    root = copy_of("images", tmp_path)
    path = root / "meta/stats.json"
    stale = json.loads(path.read_text())
    recorded = stale["action"]["mean"]
    stale["action"]["mean"] = [value + 1 for value in recorded]
    path.write_text(json.dumps(stale))
    assert main(["stats", str(root), "--write", str(root)]) == 0
    printed = capsys.readouterr().out
    stats = LeRobotDatasetMetadata(str(root)).stats
    assert stats is not None

    assert "DIFFER from meta/stats.json" in printed
    assert "(action)" in printed
    assert f"written to {path}; observation.images.top as recorded" in printed
    np.testing.assert_allclose(stats["action"]["mean"], recorded, rtol=1e-5)
    camera = "observation.images.top"
    assert stats[camera]["mean"].tolist() == stale[camera]["mean"]


def test_depth_is_written_in_its_recorded_unit(tmp_path: Path) -> None:
    """Whatever unit samples have, stats.json has the recorder's."""
    path = tmp_path / "stats.json"
    root = str(FIXTURES / "depth")
    assert main(["stats", root, "--images", "--write", str(path)]) == 0
    camera = "observation.depth.top"
    recorded = LeRobotDatasetMetadata(root).stats
    assert recorded is not None

    found = json.loads(path.read_text())[camera]["mean"]
    np.testing.assert_allclose(found, recorded[camera]["mean"], rtol=0.01)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--features", "left"], 1, "want features with statistics, got left"),
        (["--episodes", "99"], 1, "no episode of"),
        (["--write", "nowhere/else"], 1, "Nothing is written"),
    ],
)
def test_errors_are_one_line(
    options: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each names what was wanted."""
    assert main(["stats", AV1, *options]) == code

    assert message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["x", "3:", ":3", "-1", "1:2:3"])
def test_wrong_episodes_exit_with_2(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Want a number or a range."""
    with pytest.raises(SystemExit) as stop:
        main(["stats", AV1, f"--episodes={text}"])

    assert stop.value.code == 2
    assert "want the number of an episode, or first:stop" in capsys.readouterr().err
