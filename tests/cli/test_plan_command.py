# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES

DATASET = str(FIXTURES / "av1_multifile")


def test_the_table_lists_the_needs_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    """Steps, mixing, traffic and caches."""
    assert main(["plan", DATASET, "--batch-size", "8", "--world-size", "2"]) == 0
    printed = capsys.readouterr().out

    for what in (
        "5 episodes, 62 frames",
        "16 (2 ranks x 8)",
        "steps per epoch",
        "expected",
        "simulated",
        "smallest pool for 90%",
        "requests",
        "RAM per rank to decode once",
        "disk per node",
    ):
        assert what in printed


def test_scripts_read_json(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has the same figures by name."""
    options = ["--batch-size", "8", "--world-size", "5", "--drop-last", "--epochs", "10", "--json"]
    assert main(["plan", DATASET, *options]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert (figures["episodes"], figures["frames"], figures["lanes"]) == (5, 62, 10)
    assert figures["steps"]["total"] == 10
    assert figures["steps"]["dropped_frames"] == 22
    assert figures["rank"]["readers"] == 1
    assert figures["dataset"]["measured"] is True


@pytest.mark.parametrize("world_size", [1, 2, 5])
def test_the_plan_equals_that_of_a_loader_with_defaults(
    world_size: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Command and loader choose the same lanes and number of steps."""
    options = ["--batch-size", "8", "--world-size", str(world_size), "--json"]
    assert main(["plan", DATASET, *options]) == 0
    figures = json.loads(capsys.readouterr().out)
    stream = StreamingLeRobotDataset("some/name", root=DATASET, rank=0, world_size=world_size)
    state = stream.state_dict()

    assert (figures["lanes"], figures["frames"]) == (state["lanes"], state["num_frames"])
    assert figures["steps"]["per_epoch"] == len(StreamingDataLoader(stream, batch_size=8))


def test_the_gop_length_determines_the_memory(capsys: pytest.CaptureFixture[str]) -> None:
    """Long GOPs need room for their lead-in; without --gop, info.json says how long they are."""
    folder = str(FIXTURES / "h264_long_gop")
    needed = {}
    for gop in ([], ["--gop", "250"], ["--gop", "2"]):
        assert main(["plan", folder, *gop, "--json"]) == 0
        figures = json.loads(capsys.readouterr().out)
        needed[" ".join(gop)] = figures["rank"]["frame_cache_bytes"]
    assert main(["plan", folder]) == 0

    assert needed[""] == needed["--gop 250"] >= needed["--gop 2"] > 0
    assert "with a key frame every 250 frames" in capsys.readouterr().out


def test_shared_lanes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    """A world size that does not divide the lanes costs locality, and the table says so."""
    assert main(["plan", DATASET, "--world-size", "32", "--lanes", "48"]) == 0

    assert "shared by 2 ranks; let the world size divide the lanes" in capsys.readouterr().out


def test_unshuffled_plans_have_a_lane_per_rank(capsys: pytest.CaptureFixture[str]) -> None:
    """Without shuffle every rank reads one contiguous share."""
    assert main(["plan", DATASET, "--world-size", "3", "--no-shuffle", "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)

    assert (figures["lanes"], figures["mixing"]["window_frames"]) == (3, 1)


def test_a_folder_without_a_dataset_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1 and one sentence, no traceback."""
    assert main(["plan", str(tmp_path)]) == 1

    assert "robostream plan:" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options", [["--batch-size", "0"], ["--diversity", "1.5"], ["--lanes", "x"]]
)
def test_impossible_arguments_exit_with_2(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong usage prints the usage."""
    with pytest.raises(SystemExit) as stop:
        main(["plan", DATASET, *options])

    assert stop.value.code == 2
    assert options[0] in capsys.readouterr().err
