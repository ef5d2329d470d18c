# SPDX-License-Identifier: Apache-2.0
"""Parquet is read without Arrow's threads, and a page that was damaged is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from robostream import LeRobotDataset
from robostream.errors import DataFileError
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


def test_metadata_and_rows_are_read_without_arrows_threads() -> None:
    """One of them may let go of Python's memory when Python has ended: the program would abort."""
    subprocess.run([sys.executable, "-c", COUNT_THREADS, FIXTURES / "av1_multifile"], check=True)


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
