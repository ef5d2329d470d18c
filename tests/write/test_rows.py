# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from robostream.meta.info import parse_info
from robostream.write.join import join_rows, row_schema, row_table, write_rows
from tests.fixture_datasets import FIXTURES, NAMES
from tests.parameters import examples

DTYPES = ("bool", "int8", "uint8", "int32", "uint16", "int64", "uint64", "float16", "float64")


@pytest.mark.parametrize("dataset", NAMES)
def test_the_schema_is_the_one_lerobot_writes(dataset: str, tmp_path: Path) -> None:
    """Names, types, extension types and the description for `datasets` are LeRobot's."""
    info = parse_info((FIXTURES / dataset / "meta/info.json").read_text(), dataset)
    theirs = pq.read_schema(FIXTURES / dataset / "data/chunk-000/file-000.parquet")
    pq.write_table(row_schema(info.features).empty_table(), tmp_path / "mine.parquet")
    mine = pq.read_schema(tmp_path / "mine.parquet")
    described = [json.loads(s.metadata[b"huggingface"])["info"] for s in (mine, theirs)]

    assert mine.equals(theirs.with_metadata(mine.metadata), check_metadata=True)
    assert described[0] == described[1]


@examples(60)
@given(data=st.data(), dtype=st.sampled_from(DTYPES))
def test_numbers_come_back_as_they_were(data: st.DataObject, dtype: str) -> None:
    """Arrays of one to five axes keep every value through the Arrow table."""
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=5, max_side=3))
    values = data.draw(hnp.arrays(dtype, (data.draw(st.integers(1, 4)), *shape)))
    features = {"x": {"dtype": dtype, "shape": shape, "names": None}}
    back = np.array(row_table(features, {"x": values})["x"].to_pylist(), dtype)

    np.testing.assert_array_equal(back, values[:, 0] if shape == (1,) else values)


def test_each_episode_is_one_row_group(tmp_path: Path) -> None:
    """A joined file has the episodes' row groups in order, snappy and with dictionaries."""
    features: dict[str, Any] = {"x": {"dtype": "int64", "shape": (1,), "names": None}}
    parts = []
    for number, length in enumerate([3, 1, 2_000_000]):
        parts.append(tmp_path / f"{number}.parquet")
        size = write_rows(row_table(features, {"x": np.full(length, number)}), parts[-1])
        assert size < parts[-1].stat().st_size
    join_rows(parts, tmp_path / "joined.parquet")
    joined = pq.ParquetFile(tmp_path / "joined.parquet")
    groups = [joined.metadata.row_group(i) for i in range(joined.num_row_groups)]

    assert [group.num_rows for group in groups] == [3, 1, 2_000_000]
    assert {group.column(0).compression for group in groups} == {"SNAPPY"}
    assert joined.schema_arrow.metadata[b"huggingface"]


def test_images_are_bytes_with_a_name() -> None:
    """An image is stored as {bytes, path}, also if there are more than one chunk holds."""
    features: dict[str, Any] = {"cam": {"dtype": "image", "shape": (1, 1, 3), "names": None}}
    images = [(f"frame-{k:06d}.png", bytes([k % 256])) for k in range(600)]
    column = row_table(features, {"cam": images})["cam"]

    assert column.to_pylist() == [{"bytes": content, "path": name} for name, content in images]
    assert column.type == pa.struct([("bytes", pa.binary()), ("path", pa.string())])
