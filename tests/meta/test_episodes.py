# SPDX-License-Identifier: Apache-2.0
"""Episode tables that other writers made: odd columns, odd types, files that differ."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.errors import MetadataError
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import FIXTURES, NAMES, copy_of

EPISODES = "meta/episodes/chunk-000/file-000.parquet"
SECOND = "meta/episodes/chunk-000/file-001.parquet"
FINGERPRINTS = {
    "av1_multifile": "aa2e6d18b1b699a959a2ceae848fa9f9",
    "depth": "5900a29243f536d010d1c12a609fa65f",
    "h264_bframes": "02dc42901299fed57a6183121bfd840d",
    "h264_long_gop": "1135f1d9c1c0384a5b023b63ff2016d4",
    "images": "b425e5ddcdbbe7a2bf44da0da801a397",
}
NESTED = pa.list_(pa.list_(pa.int64()))
NAMED = pa.struct([("name", pa.string()), ("at", pa.timestamp("ns"))])


def load(root: Path) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata("some/name", root=root)


def replace(root: Path, name: str, column: pa.Array) -> None:
    table = pq.read_table(root / EPISODES)
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, column), root / EPISODES)


def append(root: Path, name: str, column: pa.Array) -> None:
    table = pq.read_table(root / EPISODES)
    pq.write_table(table.append_column(name, column), root / EPISODES)


@pytest.mark.parametrize("name", NAMES)
def test_fingerprints_stay(name: str) -> None:
    """States that were saved with them must load (change them only with the state's version)."""
    assert load(FIXTURES / name).fingerprint == FINGERPRINTS[name]


# pyarrow before 26 cannot read the missing lists of a fixed size that it writes.
NO_PAIR = None if int(pa.__version__.partition(".")[0]) >= 26 else [0, 0]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], pa.timestamp("ns")),
        ([1, None, 2], pa.timestamp("us", "Europe/Berlin")),
        ([1, None, 2], pa.date32()),
        ([1, None, 2], pa.time64("ns")),
        ([1, None, 2], pa.duration("ns")),
        ([Decimal("1.5"), None, Decimal(2)], pa.decimal128(5, 2)),
        ([b"\xff", None, b"\xfe"], pa.binary()),
        ([[1, 2], NO_PAIR, [1, 3]], pa.list_(pa.int64(), 2)),
        ([[[1], None], None, [[1, 2]]], NESTED),
        ([{"name": "a", "at": 1}, None, {"name": "a", "at": 2}], NAMED),
        ([[{"name": "a", "at": 1}], None, []], pa.list_(NAMED)),
        ([[("a", 1)], None, [("a", 2)]], pa.map_(pa.string(), pa.int64())),
        ([None, None, None], pa.null()),
    ],
    ids=lambda value: str(value) if isinstance(value, pa.DataType) else "",
)
def test_extra_columns_of_any_type_are_digested(
    tmp_path: Path, values: list[Any], kind: pa.DataType
) -> None:
    """A column nobody reads is no hindrance, and the fingerprint sees what it holds."""
    root = copy_of("images", tmp_path)
    append(root, "extra", pa.array(values, kind))
    first = load(root).fingerprint
    replace(root, "extra", pa.array([*values[:2], values[0]], kind))

    assert (load(root).fingerprint == first) == (values[2] is None)


def split(root: Path, name: str, first: pa.DataType, second: pa.DataType | None) -> None:
    """Cut the table into two files, with a column of two types, or only in the first."""
    table = pq.read_table(root / EPISODES)
    if name not in table.column_names:
        table = table.append_column(name, pa.nulls(len(table)))
    at = table.column_names.index(name)
    halves = table.slice(0, 1), table.slice(1)
    for half, kind, file in zip(halves, (first, second), (EPISODES, SECOND), strict=True):
        values = half.column(name).to_pylist()
        column = pa.array([None] * len(half) if kind == pa.null() else values, kind)
        typed = half.remove_column(at) if kind is None else half.set_column(at, name, column)
        pq.write_table(typed, root / file)


TEXTS = pa.list_(pa.string())


@pytest.mark.parametrize(
    ("name", "first", "second", "keeps"),
    [
        ("length", pa.int32(), pa.int64(), True),
        ("length", pa.float64(), pa.uint64(), False),
        ("data/file_index", pa.int64(), pa.int16(), True),
        ("tasks", pa.large_list(pa.string()), TEXTS, True),
        ("tasks", TEXTS, pa.large_list(pa.large_string()), True),
        ("tasks", TEXTS, pa.null(), False),
        ("tasks", pa.null(), TEXTS, False),
        ("tasks", TEXTS, None, False),
        ("extra/file_index", pa.int64(), None, False),
    ],
)
def test_files_whose_types_differ_are_one_table(
    tmp_path: Path, name: str, first: pa.DataType, second: pa.DataType | None, keeps: bool
) -> None:
    """Files of several writers are read in types that hold all; what is not there is None."""
    root = copy_of("images", tmp_path)
    split(root, name, first, second)
    meta = load(root)

    assert meta.episodes["length"].sum() == meta.total_frames
    assert (meta.fingerprint == FINGERPRINTS["images"]) == keeps


def test_files_whose_types_do_not_go_together(tmp_path: Path) -> None:
    """The file that differs is named."""
    root = copy_of("images", tmp_path)
    split(root, "extra", pa.int64(), pa.string())

    with pytest.raises(MetadataError, match=r"file-001\.parquet: want columns of the types"):
        load(root)


@pytest.mark.parametrize(
    ("name", "column", "found"),
    [
        ("episode_index", pa.array(["0", "1", "2"]), "the type string"),
        ("length", pa.nulls(3), "the type null"),
        ("length", pa.array([[1], [2], [3]]), "the type list"),
        ("length", pa.array([1, None, 3]), "1 rows without a value"),
        ("length", pa.array([1, 2, float("nan")]), "nan was truncated"),
        ("data/chunk_index", pa.array([False] * 3), "the type bool"),
        ("data/chunk_index", pa.array([0, 1, 2], pa.date32()), "the type date32"),
        ("data/chunk_index", pa.array([Decimal(0)] * 3), "the type decimal128"),
        ("data/file_index", pa.array([0, 0, 0.5]), r"Float value 0\.5"),
        ("data/file_index", pa.array([0, 0, 1 << 32]), "value 4294967296 not in range"),
        ("data/file_index", pa.array([0, 0, 1 << 31]), "value 2147483648 not in range"),
        ("data/file_index", pa.array([0, 0, -1]), "value -1 not in range"),
        ("videos/observation.images.front/from_timestamp", pa.array(["0"] * 3), "the type string"),
        (
            "videos/observation.images.front/to_timestamp",
            pa.array([1, 2, float("inf")]),
            "infinite",
        ),
    ],
)
def test_required_columns_hold_numbers(
    tmp_path: Path, name: str, column: pa.Array, found: str
) -> None:
    """What is no number, or is none of a file, is told with the column and the file."""
    root = copy_of("h264_long_gop" if "videos" in name else "images", tmp_path)
    replace(root, name, column)

    with pytest.raises(MetadataError, match=rf"file-000\.parquet: want .*{name}, found .*{found}"):
        load(root)


def test_two_columns_of_one_name(tmp_path: Path) -> None:
    """Which of them is meant nobody knows."""
    root = copy_of("images", tmp_path)
    append(root, "length", pa.array([1, 2, 3]))

    with pytest.raises(MetadataError, match="found more than one length"):
        load(root)


def test_the_first_frame_is_0(tmp_path: Path) -> None:
    """A table cut from a larger one would put all frames elsewhere."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / EPISODES)
    for name in ("dataset_from_index", "dataset_to_index"):
        replace(root, name, pa.array([frame + 5 for frame in table.column(name).to_pylist()]))

    with pytest.raises(MetadataError, match=r"episode 0 .* the first begins at 0"):
        load(root)
