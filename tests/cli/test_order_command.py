# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES

DATASET = str(FIXTURES / "av1_multifile")


def write_log(path: Path, *options: str) -> str:
    assert main(["order", DATASET, "--log", str(path), "--batch-size", "4", *options]) == 0
    return str(path)


def test_receipts_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """The first steps are printed as a table."""
    assert main(["order", DATASET, "--batch-size", "4", "--steps", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].split() == ["epoch", "step", "stop", "digest", "receipt"]
    assert len(lines) == 2 + 3


@pytest.mark.parametrize("world_size", [1, 3])
def test_receipts_equal_those_of_a_loader_with_defaults(
    world_size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command and loader share their defaults, so logs and states can be compared."""
    options = ["--batch-size", "4", "--world-size", str(world_size), "--epochs", "2"]
    assert main(["order", DATASET, *options, "--json", "--steps", "99"]) == 0
    head, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    stream = StreamingLeRobotDataset(
        "some/name", root=DATASET, camera_keys=[], rank=0, world_size=world_size
    )
    loader = StreamingDataLoader(stream, batch_size=4, num_workers=0)
    states = [loader.state_dict() for _ in range(2) for _ in loader]

    assert {name: states[0][name] for name in head if name != "order_log"} == {
        name: value for name, value in head.items() if name != "order_log"
    }
    assert len(states) == len(lines)
    for state, line in zip(states, lines, strict=True):
        # A state at the end of an epoch stands at the start of the next one.
        is_end = line["stop"] == head["num_frames"]
        place = (line["epoch"] + 1, 0) if is_end else (line["epoch"], line["stop"])
        assert (state["epoch"], state["position"]) == place
        assert is_end or state["receipt"] == line["receipt"]


def test_json_lines_are_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the lines that --log writes."""
    log = write_log(tmp_path / "a", "--epochs", "2")
    capsys.readouterr()
    assert (
        main(["order", DATASET, "--batch-size", "4", "--epochs", "2", "--json", "--steps", "99"])
        == 0
    )

    assert capsys.readouterr().out == Path(log).read_text()
    assert len(Path(log).read_text().splitlines()) == 1 + 2 * 16


def test_equal_orders_agree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0, on any number of ranks with the same lanes and the same global batch."""
    first = write_log(tmp_path / "a", "--lanes", "4")
    second = write_log(tmp_path / "b", "--lanes", "4", "--world-size", "2", "--batch-size", "2")

    assert main(["order", "--compare", first, second]) == 0
    assert "agree at all 16 positions they share" in capsys.readouterr().out


def test_a_fork_is_named_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1, with the step, the receipts, and the settings that differ."""
    first, second = write_log(tmp_path / "a"), write_log(tmp_path / "b", "--pool-size", "1")
    assert main(["order", "--compare", first, second]) == 1
    printed = capsys.readouterr().out

    assert "fork" in printed
    assert "in step" in printed
    assert "pool_size: 64, 1" in printed


def test_scripts_read_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The comparison as JSON, with the forking lines."""
    first, second = write_log(tmp_path / "a"), write_log(tmp_path / "b", "--seed", "1")
    capsys.readouterr()
    assert main(["order", "--compare", first, second, "--json"]) == 1
    comparison = json.loads(capsys.readouterr().out)

    assert comparison["settings"] == ["seed: 42, 1"]
    assert comparison["fork"][0]["step"] == 0


@pytest.mark.parametrize("arguments", [[], [DATASET, "--compare", "a", "b"], ["--compare", "a"]])
def test_a_dataset_or_two_logs_are_required(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither or both exits with 2."""
    with pytest.raises(SystemExit) as stop:
        main(["order", *arguments])

    assert stop.value.code == 2
    assert "usage: robostream order" in capsys.readouterr().err
