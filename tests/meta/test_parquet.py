# SPDX-License-Identifier: Apache-2.0
"""Parquet is read without Arrow's threads, and a page that was damaged is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream import LeRobotDataset
from robostream.errors import DataFileError
from robostream.meta import OpenParquet
from robostream.storage import LocalSource
from tests.fixture_datasets import FIXTURES, copy_of
from tests.write.recording import quick_writer, record

# Arrow's threads stay once they are there.
COUNT_THREADS = """
import os, sys
import torch
from robostream import LeRobotDataset
before = len(os.listdir("/proc/self/task"))
dataset = LeRobotDataset("x", root=sys.argv[1])
dataset.get_raw_item(0)
assert len(os.listdir("/proc/self/task")) == before, os.listdir("/proc/self/task")
"""


@pytest.mark.parametrize("name", ["av1_multifile", "images"])
def test_metadata_and_rows_are_read_without_arrows_threads(name: str) -> None:
    """One of them may let go of Python's memory when Python has ended: the program would abort."""
    subprocess.run([sys.executable, "-c", COUNT_THREADS, FIXTURES / name], check=True)


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_a_damaged_page_of_our_own_files_is_told(tmp_path: Path, at: float) -> None:
    """Bytes that a disk lost are not delivered as numbers."""
    with quick_writer(tmp_path / "own") as writer:
        record(writer, [50])
    (path,) = (tmp_path / "own/data").glob("*/*.parquet")
    column = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    middle = column.data_page_offset + int(at * column.total_compressed_size)
    content[middle : middle + 8] = bytes(8)
    path.write_bytes(content)

    with pytest.raises(DataFileError, match=r"file-000\.parquet: .*(CRC|Deserializing|page)"):
        LeRobotDataset("x", root=tmp_path / "own").get_raw_item(0)


def test_files_without_checksums_are_read(tmp_path: Path) -> None:
    """As most are."""
    root = copy_of("av1_multifile", tmp_path)
    for path in root.glob("data/**/*.parquet"):
        pq.write_table(pq.read_table(path), path)

    assert LeRobotDataset("x", root=root).get_raw_item(0)["frame_index"] == 0


class Counted(LocalSource):
    """A file that knows what was read of it."""

    reads: ClassVar[list[int]] = []

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes, and remember how many."""
        self.reads.append(stop - start)
        return super().read(start, stop)


def test_columns_that_are_read_together_come_without_the_others(tmp_path: Path) -> None:
    """Near ones with one read; pictures that nobody asks for are not fetched."""
    rng = np.random.default_rng(0)
    pictures = [rng.bytes(50_000) for _ in range(8)]
    numbers = {"state": [[1.0, 2.0]] * 8, "frame_index": list(range(8))}
    table = pa.table({"a": [1] * 8, "picture": pictures, **numbers, "picture.more": pictures})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=4)
    with OpenParquet(Counted(tmp_path / "rows.parquet"), columns_together=True) as file:
        Counted.reads.clear()
        found = file.read_row_groups([0, 1], ["state", "frame_index"])
        reads, span = list(Counted.reads), file.byte_span([0, 1])

    assert found.equals(table.select(list(numbers)))
    assert len(reads) == 2
    assert sum(reads) < 2_000
    assert span[1] - span[0] > sum(map(len, pictures)) * 2
