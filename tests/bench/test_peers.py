# SPDX-License-Identifier: Apache-2.0
"""Tests of `bench peers`: it checks what loaders deliver, and names those that fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from robostream.bench.loaders import LOADERS, count_delivered, expected_images, in_levels, is_right
from robostream.bench.measure import BenchCase
from robostream.bench.peers import PUBLICATION, run, tables_text
from robostream.bench.results import DOCS, RESULTS, read_figures
from robostream.dataset import LeRobotDataset
from robostream.errors import RobostreamError
from robostream.meta import LeRobotDatasetMetadata
from tests.bench.runs import case_of
from tests.fixture_datasets import FIXTURES

REPO = Path(__file__).parents[2]
ROOT = FIXTURES / "av1_multifile"
META = LeRobotDatasetMetadata("some/name", root=ROOT)
CASE = case_of(ROOT, batch_size=8, workers=1)


@pytest.mark.parametrize("name", ["av1_multifile", "h264_bframes", "images"])
def test_the_expected_images_are_those_of_map_style_reading(name: str) -> None:
    """Images decoded file by file equal those of the reader up to rounding."""
    expected = expected_images(LeRobotDatasetMetadata("some/name", root=FIXTURES / name))
    dataset = LeRobotDataset("some/name", root=FIXTURES / name, return_uint8=True)

    for key, images in expected.items():
        assert len(images) == len(dataset)
        for at in (0, len(dataset) // 2, len(dataset) - 1):
            assert np.abs(in_levels(dataset[at][key]) - images[at]).max() <= 2


@pytest.mark.parametrize("name", ["robostream", "robostream, map-style", "plain PyAV"])
def test_loaders_that_are_right_are_found_right(name: str) -> None:
    """Each delivers every frame once, the right images, and one order for any workers."""
    found = count_delivered(LOADERS[name].open, CASE)

    assert (found["missing"], found["repeated"], found["wrong_pictures"]) == (0, 0, 0)
    assert found["delivered"] == found["frames"]
    assert found["pictures"] == 2 * found["frames"]
    assert found["same_order_with_more_workers"]


def test_a_loader_that_is_wrong_is_found_out() -> None:
    """This one repeats a batch, omits frames and delivers the images of the next frame."""
    dataset = LeRobotDataset("some/name", root=ROOT, return_uint8=True)
    cameras = dataset.meta.camera_keys

    def careless(case: BenchCase) -> Iterator[dict[str, Any]]:
        del case
        for start in (0, 8, 8):
            items = [dataset[at] for at in range(start, start + 8)]
            late = [dataset[at + 1] for at in range(start, start + 8)]
            yield {
                "index": torch.tensor([int(item["index"]) for item in items]),
                **{key: torch.stack([item[key] for item in late]) for key in cameras},
            }

    found = count_delivered(careless, CASE)

    assert found["repeated"] == 8
    assert found["missing"] == found["frames"] - 16
    assert found["wrong_pictures"] > 0.9 * found["pictures"]


def test_rounding_is_no_fault_and_a_neighbour_is() -> None:
    """An image that is off by one level is right; the previous frame's is wrong."""
    images = next(iter(expected_images(META).values()))
    off = np.clip(images[5].astype(int) + 1, 0, 255).transpose(2, 0, 1)

    assert is_right(off, images, 5)
    assert not is_right(images[4].transpose(2, 0, 1), images, 5)


def test_unknown_loaders_and_cases_are_refused() -> None:
    """The error lists the known names."""
    with pytest.raises(RobostreamError, match="plain PyAV"):
        run(only=["nobody"], events=[], workers=1, rounds=1, seconds=1)
    with pytest.raises(RobostreamError, match="av1-single"):
        run(only=["plain PyAV"], events=["nothing"], workers=1, rounds=1, seconds=1)


def test_tables_name_what_failed_and_what_is_absent() -> None:
    """A loader that fails has a row that says why."""
    figures = read_figures(REPO / RESULTS / PUBLICATION.results)
    row = {**figures["results"][0], "contestant": "broken", "failed": "IndexError: 70"}
    text = tables_text({**figures, "results": [row], "absent": ["someone"]})

    assert "IndexError: 70" in text
    assert "someone is left out" in text
    json.dumps(figures)


def test_without_lerobot_the_readme_keeps_its_sentence_and_chart(tmp_path: Path) -> None:
    """A run of some loaders refreshes the tables alone."""
    for path in (*PUBLICATION.documents, *PUBLICATION.charts):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes((REPO / path).read_bytes())
    figures = read_figures(REPO / RESULTS / PUBLICATION.results)
    rows = [row for row in figures["results"] if not row["contestant"].startswith("LeRobot")]
    PUBLICATION.publish(tmp_path, figures | {"results": rows})

    for path in ("README.md", *PUBLICATION.charts):
        assert (tmp_path / path).read_bytes() == (REPO / path).read_bytes()
    assert (tmp_path / DOCS).read_bytes() != (REPO / DOCS).read_bytes()


def test_cases_give_windows_in_seconds() -> None:
    """As `delta_timestamps`, by camera; none for single frames."""
    windows = replace(CASE, window_s=(-1.0, 0.0)).windows()

    assert CASE.windows() is None
    assert windows is not None
    assert set(map(tuple, windows.values())) == {(-1.0, 0.0)}
