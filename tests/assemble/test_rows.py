# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream import config
from robostream.assemble import DatasetLocation, SampleOptions, open_dataset
from robostream.assemble.columns import parse_tool_calls
from robostream.assemble.rows import RowReader
from robostream.errors import DataFileError
from tests.fixture_datasets import ALL_NAMES, FIXTURES, copy_of, edit_info

DATA = "data/chunk-000/file-000.parquet"


def reader_of(root: Path) -> RowReader:
    dataset = open_dataset(DatasetLocation("some/name", root), SampleOptions())
    return RowReader(dataset, dataset.file_opener(), dataset.spec.columns)


def rewrite(root: Path, table: pa.Table, **options: int) -> None:
    pq.write_table(table, root / DATA, **options)


def replace_column(root: Path, key: str, cells: Any) -> None:
    table = pq.read_table(root / DATA)
    rewrite(root, table.set_column(table.column_names.index(key), key, pa.array(cells)))


@pytest.mark.parametrize("name", ALL_NAMES)
def test_rows_equal_the_file(name: str) -> None:
    """Every number of every episode equals what pyarrow reads, in LeRobot's three dtypes."""
    reader = reader_of(FIXTURES / name)
    files = sorted((FIXTURES / name / "data").rglob("*.parquet"))
    whole = pa.concat_tables([pq.read_table(file) for file in files])
    start = 0
    for episode, length in enumerate(reader._meta.episodes["length"].tolist()):
        rows = reader.read(episode)
        part = whole.slice(start, length)
        start += length
        for key, values in rows.numbers.items():
            wanted = np.array(part.column(key).to_pylist()).astype(values.dtype)
            np.testing.assert_array_equal(values, wanted, key)
            assert values.dtype in (np.float32, np.int64, np.bool_)
        for key in rows.objects:
            cells = part.column(key).to_pylist()
            texts = [c["bytes"] if isinstance(c, dict) else c for c in cells]
            assert [rows.object_at(key, i) for i in range(length)] == texts


@pytest.mark.parametrize("group_rows", [1, 4, 10, 1000])
def test_row_groups_that_are_no_episodes(tmp_path: Path, group_rows: int) -> None:
    """Files rewritten by other tools, with groups across episodes, give the same rows."""
    root = copy_of("images", tmp_path)
    rewrite(root, pq.read_table(root / DATA), row_group_size=group_rows)
    there, here = reader_of(FIXTURES / "images"), reader_of(root)
    for episode in (2, 0, 1):
        expected, found = there.read(episode), here.read(episode)

        for key, values in expected.numbers.items():
            np.testing.assert_array_equal(found.numbers[key], values)
        assert found.objects["observation.images.top"] == expected.objects["observation.images.top"]


@pytest.mark.parametrize("group_rows", [4, 40, 1 << 20])
def test_runs_of_episodes_equal_the_episodes(tmp_path: Path, group_rows: int) -> None:
    """Numeric columns of consecutive episodes at once, however row groups lie."""
    root = copy_of("h264_long_gop", tmp_path)
    rewrite(root, pq.read_table(root / DATA), row_group_size=group_rows)
    dataset = open_dataset(DatasetLocation(str(root)), SampleOptions())
    reader = RowReader(dataset, dataset.file_opener(), ["action"])
    for run in (range(3), range(1, 3), range(1, 2), range(2, 3)):
        whole = reader.read_numbers(run)
        for key, values in whole.items():
            parts = [reader.read(episode).numbers[key] for episode in run]

            np.testing.assert_array_equal(values, np.concatenate(parts))


def test_an_episode_does_not_keep_its_file_in_memory(tmp_path: Path) -> None:
    """Rows cut out of a large group hold their own bytes only."""
    root = copy_of("images", tmp_path)
    rewrite(root, pq.read_table(root / DATA))
    rows = reader_of(root).read(1)

    assert rows.nbytes < (root / DATA).stat().st_size / 2


def test_row_groups_that_are_too_large_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before memory is taken for what a stranger's file says it holds."""
    monkeypatch.setattr(config, "MOST_ROW_GROUP_BYTES", 100)

    with pytest.raises(DataFileError, match=r"file-000\.parquet: row group 0 says it has .* 100\."):
        reader_of(FIXTURES / "images").read(0)


@pytest.mark.parametrize("keep", [0, 40, -6])
def test_a_truncated_file(tmp_path: Path, keep: int) -> None:
    """A cut Parquet file is named, with the cure."""
    root = copy_of("images", tmp_path)
    (root / DATA).write_bytes((root / DATA).read_bytes()[:keep])

    with pytest.raises(DataFileError, match=r"file-000\.parquet: not a readable Parquet.*again"):
        reader_of(root).read(0)


def test_a_missing_file(tmp_path: Path) -> None:
    """A file that meta/ names but is not there is told as missing."""
    root = copy_of("images", tmp_path)
    (root / DATA).unlink()

    with pytest.raises(DataFileError, match=r"file-000\.parquet: the file is missing"):
        reader_of(root).read(0)


def test_a_file_of_another_version(tmp_path: Path) -> None:
    """Too few rows, foreign rows and missing columns are told apart."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / DATA)
    rewrite(root, table.slice(0, 20))
    with pytest.raises(DataFileError, match=r"should be rows \[16, 27\)"):
        reader_of(root).read(2)
    rewrite(root, table.take(list(range(26, -1, -1))))
    with pytest.raises(DataFileError, match="want frames 0 to 8 of it in order"):
        reader_of(root).read(0)
    rewrite(root, table.drop_columns(["action"]))
    with pytest.raises(DataFileError, match=r"the columns action that info\.json declares"):
        reader_of(root).read(0)


@pytest.mark.parametrize("wrong_s", [np.nan, np.inf, -np.inf])
def test_times_are_numbers(tmp_path: Path, wrong_s: float) -> None:
    """Without videos they may be a clock's, but no frame's time is compared with them."""
    root = copy_of("images", tmp_path)
    times = pq.read_table(root / DATA)["timestamp"].to_numpy().copy() + 0.3
    replace_column(root, "timestamp", times)
    assert reader_of(root).read(1).numbers["timestamp"][3] == times[12]
    times[12] = wrong_s
    replace_column(root, "timestamp", times)

    with pytest.raises(DataFileError, match=rf"episode 1, frame 3: timestamp is {wrong_s};"):
        reader_of(root).read(1)


@pytest.mark.parametrize("key", ["action", "timestamp", "observation.images.top"])
def test_two_columns_of_one_name_are_refused(tmp_path: Path, key: str) -> None:
    """Nobody knows which of them is meant."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / DATA)
    rewrite(root, table.append_column(key, table[key]))

    with pytest.raises(
        DataFileError, match=rf"file-000\.parquet: there are several columns {key};"
    ):
        reader_of(root).read(0)


def test_a_column_of_another_shape(tmp_path: Path) -> None:
    """A column that does not fit its declared shape is an error, not a reshaped guess."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info["features"]["action"].update(shape=[6]))

    with pytest.raises(DataFileError, match=r"'action' holds lists of 7 in place of 6; info"):
        reader_of(root).read(0)


def test_undeclared_language_columns_are_refused(tmp_path: Path) -> None:
    """Annotations that info.json does not know would vanish silently."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / DATA)
    rewrite(root, table.append_column("language_events", pa.nulls(27, pa.list_(pa.string()))))

    with pytest.raises(DataFileError, match="language_events are in the file but not declared"):
        reader_of(root).read(0)


def test_declared_language_columns_pass_through(tmp_path: Path) -> None:
    """Lists of annotations come out as Python values, tool calls parsed."""
    root = copy_of("images", tmp_path)
    row = {"role": "user", "content": "stop", "style": None, "camera": None}
    cells = [[row | {"tool_calls": ['{"name": "say"}']}] if i % 2 else [] for i in range(27)]
    table = pq.read_table(root / DATA)
    rewrite(root, table.append_column("language_events", pa.array(cells)))
    entry = {"dtype": "language", "shape": [1], "names": None}
    edit_info(root, lambda info: info["features"].update(language_events=entry))
    rows = reader_of(root).read(0)

    assert rows.object_at("language_events", 0) == []
    parsed = parse_tool_calls(rows.object_at("language_events", 1))
    assert parsed == [row | {"tool_calls": [{"name": "say"}]}]
