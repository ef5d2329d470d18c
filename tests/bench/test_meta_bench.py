# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from robostream.bench.meta import CAMERAS, measure_load, write_meta_folder
from robostream.meta import LeRobotDatasetMetadata

EPISODES = 700


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata of an imagined dataset, its table in row groups of 10."""
    root = tmp_path_factory.mktemp("imagined")
    write_meta_folder(root, EPISODES, rows_per_group=10)
    return root


def test_the_imagined_dataset_is_one_a_reader_accepts(folder: Path) -> None:
    """Counts, lengths, files and timestamps are consistent, as in a recorded dataset."""
    meta = LeRobotDatasetMetadata("imagined", root=folder)
    start, stop = (meta.episodes[f"videos/{CAMERAS[0]}/{end}_timestamp"] for end in ("from", "to"))
    file = meta.episodes[f"videos/{CAMERAS[0]}/file_index"]
    same_file = file[1:] == file[:-1]

    assert meta.video_keys == list(CAMERAS)
    assert len(meta.episodes) == EPISODES
    assert file.max() > 0
    assert np.allclose(start[1:][same_file], stop[:-1][same_file])
    assert (start[1:][~same_file] == 0).all()
    assert np.allclose(stop - start, meta.episodes["length"] / meta.fps)
    assert set(meta.tasks) >= {task for row in meta.episodes[:50] for task in row["tasks"]}


def test_the_table_is_as_wide_as_a_recorded_one(folder: Path) -> None:
    """It has the columns of statistics, in row groups of the given size."""
    (table,) = (folder / "meta/episodes").rglob("*.parquet")
    with pq.ParquetFile(table) as file:
        stats = [name for name in file.schema_arrow.names if name.startswith("stats/")]

        assert file.num_row_groups == EPISODES // 10
        assert len(stats) == 10 * (3 + 2 + 5)


def test_loading_is_measured(folder: Path) -> None:
    """Loading returns seconds and bytes; the columns in memory are below the peak."""
    found = measure_load(str(folder))

    assert all(value >= 0 for value in found.values())
    assert 0 < found["kept_bytes"] < found["peak_bytes"]
