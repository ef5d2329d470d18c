# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench suite`."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from robostream.bench.measure import BenchData, merge_row_groups
from robostream.bench.results import RESULTS
from robostream.bench.suite import (
    CASES,
    DATASETS,
    PUBLICATION,
    case_figures,
    public_figures,
    run_cases,
)
from robostream.dataset import LeRobotDataset
from robostream.errors import RobostreamError
from robostream.tools import SynthSpec
from tests.bench.runs import case_of
from tests.fixture_datasets import FIXTURES

REPO = Path(__file__).parents[2]
TINY = SynthSpec(episodes=4, distinct=2, min_frames=6, max_frames=9, cameras=1, width=64, height=64)


def test_published_figures_name_no_host_and_no_folder() -> None:
    """The committed JSON has neither."""
    text = (REPO / RESULTS / PUBLICATION.results).read_text()

    assert "hostname" not in text
    assert not re.search(r'"/(?:tmp|home|root|work)', text)


def test_every_case_has_its_dataset_and_a_name_of_its_own() -> None:
    """The first case sets nothing, and each dataset is measured."""
    assert len({(case.name, case.mode) for case in CASES}) == len(CASES)
    assert all(any(case.data is data for case in CASES) for data in DATASETS.values())
    assert CASES[0].setting == "nothing"


@pytest.mark.long
def test_cases_take_turns_and_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every round writes a file; the published figures are medians."""
    monkeypatch.setattr("robostream.bench.suite._FLOOR_S", 0.2)
    case = case_of(FIXTURES / "av1_multifile", "tiny", batch_size=4)
    (found,) = run_cases([case], rounds=2, out=tmp_path / "runs")
    figures = case_figures(case, found)

    assert len(list((tmp_path / "runs").glob("*.json"))) == 2
    assert figures["samples_per_s"] > 0
    assert figures["over_floor"] == pytest.approx(sum(figures["over_floor_rounds"]) / 2)
    assert "root" not in public_figures(found[0])


@pytest.mark.long
def test_a_case_that_fails_stops_the_suite(tmp_path: Path) -> None:
    """The error gives the reason."""
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/info.json").write_text('{"total_frames": 900}')
    with pytest.raises(RobostreamError, match="defaults single failed"):
        run_cases([case_of(tmp_path, "defaults")], rounds=1, out=tmp_path / "runs")


def test_a_dataset_is_made_once_and_a_variant_shares_its_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second call returns the same folder; one row group holds the same rows."""
    monkeypatch.setenv("ROBOSTREAM_CACHE", str(tmp_path))
    root = BenchData("tiny", TINY).open()
    made = (root / "meta/info.json").stat().st_mtime_ns
    variant = BenchData("tiny", TINY, variant=merge_row_groups).open()
    path = "data/chunk-000/file-000.parquet"
    ours, theirs = (LeRobotDataset("some/name", root=folder) for folder in (root, variant))

    assert BenchData("tiny", TINY).open() == root
    assert (root / "meta/info.json").stat().st_mtime_ns == made
    assert pq.ParquetFile(root / path).num_row_groups == 4
    assert pq.ParquetFile(variant / path).num_row_groups == 1
    assert pq.read_table(root / path).equals(pq.read_table(variant / path))
    assert all(
        (ours[at][key] == theirs[at][key]).all()
        for at in (0, len(ours) - 1)
        for key in ("action", "observation.images.front")
    )
