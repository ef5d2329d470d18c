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
        ([[1, 2], None, [1, 3]], pa.list_(pa.int64(), 2)),
        ([[[1], None], None, [[1, 2]]], NESTED),
        ([{"name": "a", "at": 1}, None, {"name": "a", "at": 2}], NAMED),
        ([[{"name": "a", "at": 1}], None, []], pa.list_(NAMED)),
        ([[("a", 1)], None, [("a", 2)]], pa.map_(pa.string(), pa.int64())),
        ([b"a" * 16, None, b"b" * 16], pa.uuid()),
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
