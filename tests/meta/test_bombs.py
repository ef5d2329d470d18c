# SPDX-License-Identifier: Apache-2.0
"""Small files that become gigabytes are refused before memory is taken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream import LeRobotDataset
from robostream.errors import DataFileError, MetadataError
from robostream.meta import LeRobotDatasetMetadata, OpenParquet
from robostream.storage import LocalSource
from tests.fixture_datasets import FIXTURES, copy_of, edit_info
from tests.servers.nginx import serve_nginx

TASKS, EPISODES = "meta/tasks.parquet", "meta/episodes/chunk-000/file-000.parquet"
DATA = "data/chunk-000/file-000.parquet"

# Reads metadata and the rows of an episode with little memory, and prints what became of it.
READ = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
from robostream.assemble import DatasetLocation, SampleOptions, open_dataset
from robostream.assemble.rows import RowReader
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    dataset = open_dataset(DatasetLocation("x", sys.argv[1]), SampleOptions())
    RowReader(dataset, dataset.file_opener(), dataset.spec.columns).read(0)
    found = "", ""
except Exception as error:
    found = type(error).__name__, str(error)
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(json.dumps([*found, grown // 1024]))
"""


def read_in_child(root: Path | str, **environment: str) -> tuple[str, str, int]:
    """Return the class and text of the error, and the MiB by which memory grew."""
    environment = {**os.environ, **environment}
    command = [sys.executable, "-c", READ, str(root)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    error, text, grown = json.loads(done.stdout.splitlines()[-1])
    return error, text, grown


def one_text(letters: int, count: int) -> pa.Array:
    """Return a column that holds the same long text many times."""
    return pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * letters])


def in_lists(values: pa.Array, rows: int) -> pa.Array:
    """Return values dealt out to lists of equal length."""
    offsets = np.linspace(0, len(values), rows + 1).astype(np.int32)
    return pa.ListArray.from_arrays(offsets, values)


def put(root: Path, file: str, key: str, column: pa.Array, **options: Any) -> None:
    """Write a file anew with another column, or one more."""
    table = pq.read_table(root / file)
    table = table.drop_columns([key] if key in table.column_names else [])
    table = table.append_column(key, column)
    pq.write_table(table, root / file, compression="zstd", store_schema=False, **options)


def texts_of_tasks(root: Path) -> None:
    table = pa.table({"task_index": np.arange(4000), "task": one_text(2_000_000, 4000)})
    pq.write_table(table, root / TASKS, compression="zstd", store_schema=False)


def texts_of_episodes(root: Path) -> None:
    put(root, EPISODES, "tasks", in_lists(one_text(2_000_000, 3000), 3))


def texts_of_rows(root: Path) -> None:
    note = {"dtype": "string", "shape": [1], "names": None}
    edit_info(root, lambda info: info["features"].update(note=note))
    put(root, DATA, "note", one_text(3_000_000, 27))


def repeated_numbers_of_episodes(root: Path) -> None:
    put(root, EPISODES, "note", in_lists(pa.array(np.zeros(3_000_000, np.int64)), 3))


def nested_lists_of_episodes(root: Path) -> None:
    put(root, EPISODES, "note", in_lists(in_lists(pa.array([0.0] * 9), 3_000_000), 3))


def zeros_of_episodes(root: Path) -> None:
    put(root, EPISODES, "note", pa.array([bytes(8_000_000)] * 3), use_dictionary=False)


def shared_beginnings_of_episodes(root: Path) -> None:
    texts = pa.array(["x" * 30_000] * 3000)
    encoding = {"tasks.list.element": "DELTA_BYTE_ARRAY"}
    put(root, EPISODES, "tasks", in_lists(texts, 3), use_dictionary=False, column_encoding=encoding)


def repeated_numbers_of_rows(root: Path) -> None:
    put(root, DATA, "action", in_lists(pa.array(np.zeros(9_000_000, np.float32)), 27))


@pytest.mark.parametrize(
    ("make", "file", "limit"),
    [
        (texts_of_tasks, TASKS, ""),
        (texts_of_episodes, EPISODES, ""),
        (texts_of_rows, DATA, "16MiB"),
        (repeated_numbers_of_episodes, EPISODES, "16MiB"),
        (nested_lists_of_episodes, EPISODES, "16MiB"),
        (zeros_of_episodes, EPISODES, "16MiB"),
        (shared_beginnings_of_episodes, EPISODES, "16MiB"),
        (repeated_numbers_of_rows, DATA, "16MiB"),
    ],
)
def test_bombs_are_refused(
    tmp_path: Path, make: Callable[[Path], None], file: str, limit: str
) -> None:
    """The error names the file and the setting; memory grows by hardly more than one page."""
    root = copy_of("images", tmp_path)
    make(root)
    assert (root / file).stat().st_size < 300_000

    error, text, grown = read_in_child(root, ROBOSTREAM_DECODE_LIMIT=limit)

    assert (error, f"{root / file}: decoded, it would" in text) == ("DataFileError", True), text
    assert f"want at most {'16.0 MiB' if limit else '2.0 GiB'}" in text
    assert "set ROBOSTREAM_DECODE_LIMIT to more" in text
    assert grown < 150


# Opens metadata with 500 MiB more of memory than its imports have taken.
OPEN = """
import resource, sys
from robostream.errors import MetadataError
from robostream.meta import LeRobotDatasetMetadata
limit = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + (500 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    LeRobotDatasetMetadata("x", sys.argv[1])
except MetadataError as error:
    print(error)
"""


def test_too_little_memory_is_told(tmp_path: Path) -> None:
    """Where the limit is above what the machine has."""
    root = copy_of("images", tmp_path)
    texts_of_tasks(root)
    environment = {**os.environ, "ROBOSTREAM_DECODE_LIMIT": "100GiB"}
    command = [sys.executable, "-c", OPEN, str(root)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)

    assert done.stdout.startswith(f"{root / TASKS}: there is not enough memory to decode it")


def test_files_of_the_episode_table_share_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many files of which each is small enough are as much as one large file."""
    root = copy_of("images", tmp_path)
    put(root, EPISODES, "note", in_lists(pa.array(np.zeros(300_000, np.int64)), 3))
    table = pq.read_table(root / EPISODES)
    for number in range(3):
        path = (root / EPISODES).with_name(f"file-{number:03d}.parquet")
        pq.write_table(table.slice(number, 1), path)
    monkeypatch.setenv("ROBOSTREAM_DECODE_LIMIT", "5MiB")
    assert len(LeRobotDatasetMetadata("x", root).episodes) == 3
    monkeypatch.setenv("ROBOSTREAM_DECODE_LIMIT", "3MiB")
    with pytest.raises(DataFileError, match=r"file-002\.parquet: decoded, it would take 3\.\d MiB"):
        LeRobotDatasetMetadata("x", root)


def test_many_uses_of_a_large_dictionary_are_counted_one_by_one(tmp_path: Path) -> None:
    """One long text among short ones is no bomb, though all could be as long."""
    root = copy_of("images", tmp_path)
    codes = np.zeros(3_000, np.int32)
    codes[7] = 1
    texts = pa.DictionaryArray.from_arrays(codes, ["short", "long" * 1_000_000])
    put(root, EPISODES, "tasks", in_lists(texts, 3))

    meta = LeRobotDatasetMetadata("x", root)

    assert [len(text) for text in meta.episodes[0]["tasks"][6:9]] == [5, 4_000_000, 5]


def varint(number: int) -> bytes:
    """Return a whole number as Thrift writes one of 32 bits."""
    number *= 2
    digits = []
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


@pytest.mark.parametrize(("size", "values"), [(2**31 - 1, 2_000), (1_000, 2**31 - 1)])
def test_pages_that_are_larger_than_the_footer_says(tmp_path: Path, size: int, values: int) -> None:
    """Arrow decodes what the page says, so that is what counts."""
    path = tmp_path / "rows.parquet"
    table = pa.table({"a": in_lists(pa.array(np.arange(2_000)), 27)})
    pq.write_table(table, path, compression="none", use_dictionary=False)
    chunk = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    page = b"\x15\x00\x15" + varint(size) + b"\x15" + varint(chunk.total_compressed_size - 50)
    page += b"\x2c\x15" + varint(values) + b"\x15\x00\x15\x06\x15\x06\x00\x00"
    content[chunk.data_page_offset : chunk.data_page_offset + len(page)] = page
    path.write_bytes(content)

    with (
        OpenParquet(LocalSource(path)) as file,
        pytest.raises(DataFileError, match=r"rows\.parquet: decoded, it would take .* GiB"),
    ):
        file.read_row_groups([0], ["a"])


@pytest.mark.parametrize("page", [b"\xff" * 40, b"\x15\x00\x00", b"\x15\x00\x15\x02\x15\x01\x00"])
def test_page_headers_that_are_none(tmp_path: Path, page: bytes) -> None:
    """They are told with the place, whatever bytes they are."""
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"a": ["some text"] * 9}), path)
    content = bytearray(path.read_bytes())
    content[4 : 4 + len(page)] = page
    path.write_bytes(content)

    with (
        OpenParquet(LocalSource(path)) as file,
        pytest.raises(DataFileError, match="a page header of row group 0, column a, cannot be"),
    ):
        file.read_row_groups([0], ["a"])


@pytest.mark.parametrize("file", [TASKS, EPISODES])
def test_remote_metadata_that_claims_to_be_large_is_not_fetched(tmp_path: Path, file: str) -> None:
    """30 GB of holes, as a server counts them."""
    root = copy_of("images", tmp_path)
    os.truncate(root / file, 30_000_000_000)
    (tmp_path / "nginx").mkdir()
    with serve_nginx(root, tmp_path / "nginx") as address:
        error, text, grown = read_in_child(address)

    assert (error, text.startswith(f"{address}/{file}: ")) == ("DataFileError", True), text
    if file == TASKS:  # which are read whole
        assert "want at most 2.0 GiB" in text
        assert "found 27.9 GiB" in text
        assert "set ROBOSTREAM_DECODE_LIMIT to more" in text
    assert grown < 100


@pytest.mark.parametrize("file", ["meta/info.json", "meta/stats.json"])
def test_json_that_is_too_large_is_refused(tmp_path: Path, file: str) -> None:
    """Python takes 25 times its size; the setting is named, and raises the limit."""
    root = copy_of("images", tmp_path)
    content = (root / file).read_text().rstrip()
    (root / file).write_text(f'{content[:-1]}, "splits": {{"a": [{"[]," * 20_000_000}0]}}}}')

    error, text, grown = read_in_child(root)

    assert (error, f"{root / file}: want at most 16.0 MiB" in text) == ("MetadataError", True)
    assert "set ROBOSTREAM_JSON_LIMIT to more" in text
    assert grown < 100


def test_the_limit_of_json_can_be_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong size is told with the name of the setting."""
    monkeypatch.setenv("ROBOSTREAM_JSON_LIMIT", "100")
    with pytest.raises(MetadataError, match=r"info\.json: want at most 100 B"):
        LeRobotDatasetMetadata("x", FIXTURES / "images")
    monkeypatch.setenv("ROBOSTREAM_JSON_LIMIT", "17MiB")
    assert LeRobotDatasetMetadata("x", FIXTURES / "images").total_episodes == 3
    monkeypatch.setenv("ROBOSTREAM_JSON_LIMIT", "much")
    with pytest.raises(ValueError, match=r"ROBOSTREAM_JSON_LIMIT: want a size such as 2GiB"):
        LeRobotDatasetMetadata("x", FIXTURES / "images")


def test_only_the_columns_of_tasks_are_read(tmp_path: Path) -> None:
    """Others may be as large as they like."""
    root = copy_of("images", tmp_path)
    rows = pq.read_metadata(root / TASKS).num_rows
    put(root, TASKS, "note", in_lists(one_text(2_000_000, 4_000), rows))

    assert LeRobotDataset("x", root=root).meta.tasks.index == (
        LeRobotDataset("x", root=FIXTURES / "images").meta.tasks.index
    )


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"fps": 10**400}, r"fps must be a number above 0 and at most 1e\+18"),
        ({"fps": float("inf")}, r"fps must be a number above 0 and at most 1e\+18"),
        ({"chunks_size": 10**400}, "chunks_size must be a number above 0 and at most"),
        ({"total_frames": 10**400}, "total_frames must be a whole number from 0 to"),
    ],
)
def test_numbers_that_no_dataset_has(tmp_path: Path, change: Any, wanted: str) -> None:
    """They are told before anything is computed with them."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info.update(change))

    with pytest.raises(MetadataError, match=rf"info\.json: {wanted}"):
        LeRobotDataset("x", root=root)


def test_rows_that_are_too_wide(tmp_path: Path) -> None:
    """A batch of them would take gigabytes, whatever the data files hold."""
    root = copy_of("images", tmp_path)
    edit_info(root, lambda info: info["features"]["action"].update(shape=[2**27], names=None))

    with pytest.raises(
        MetadataError, match=r"'action' has shape \[134217728\].* at most 16,777,216"
    ):
        LeRobotDataset("x", root=root)


@pytest.mark.parametrize(
    "entry", [["x" * 1_000_000, *[""] * 100_000], [["x" * 9_999, "y"]] * 9_999]
)
def test_long_texts_in_statistics(tmp_path: Path, entry: list[Any]) -> None:
    """An array of texts takes as much for each of them as for the longest."""
    root = copy_of("images", tmp_path)
    stats = json.loads((root / "meta/stats.json").read_text())
    stats["action"]["min"] = entry
    (root / "meta/stats.json").write_text(json.dumps(stats))

    error, text, grown = read_in_child(root, ROBOSTREAM_JSON_LIMIT="1GiB")

    assert error == "MetadataError", text
    assert "stats.json: not a JSON object of statistics" in text
    assert "one of them a text of" in text
    assert grown < 200
