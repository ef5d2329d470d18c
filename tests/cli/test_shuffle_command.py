# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import pytest

from robostream.cli.main import main
from tests.fixture_datasets import FIXTURES


def test_a_dataset_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """JSON has one row per method and pool size."""
    dataset = str(FIXTURES / "av1_multifile")
    assert main(["shuffle", dataset, "--batch-size", "8", "--pool-sizes", "2", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)

    assert [row["method"] for row in rows] == [
        "robostream",
        "reference pool",
        "shuffle buffer",
        "uniform",
    ]


def test_invented_episodes_need_no_dataset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command prints a table and draws a plot."""
    plot = tmp_path / "shuffle.png"
    options = ["--mean-length", "20", "--pool-sizes", "4", "16", "--plot", str(plot)]
    assert main(["shuffle", "--episodes", "100", *options]) == 0

    assert "shuffle buffer" in capsys.readouterr().out
    assert plot.stat().st_size > 10_000
