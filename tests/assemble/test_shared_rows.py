# SPDX-License-Identifier: Apache-2.0
"""Rows of files whose groups are not episodes, decoded once for all processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.assemble import (
    DatasetLocation,
    RowReader,
    SampleOptions,
    choose_cache,
    open_dataset,
    shared_rows,
)
from robostream.meta import OpenParquet
from tests.fixture_datasets import FIXTURES, copy_of

DATA = "data/chunk-000/file-000.parquet"
KEYS = ["observation.state", "action"]


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A dataset with one row group per data file."""
    copy = copy_of("images", tmp_path)
    pq.write_table(pq.read_table(copy / DATA), copy / DATA)
    return copy


def reader_of(root: Path, *more: str) -> RowReader:
    address = DatasetLocation("some/name", root, cache=choose_cache(None, None))
    dataset = open_dataset(address, SampleOptions())
    return RowReader(dataset, dataset.file_opener(), [*KEYS, *more])


def check_rows(reader: RowReader) -> None:
    """All episodes are as in the dataset with a row group per episode."""
    wanted = reader_of(FIXTURES / "images")
    for episode in (2, 0, 1):
        found = reader.read(episode).numbers
        for key, values in wanted.read(episode).numbers.items():
            np.testing.assert_array_equal(found[key], values, key)


def kept(cache: Path) -> list[Path]:
    return sorted(cache.glob("files/*"))


def test_a_file_is_decoded_once_for_all_readers(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second reader, and a second process, only map what the first has decoded."""
    check_rows(reader_of(root))
    assert len(kept(cache)) == 1
    second = reader_of(root)
    monkeypatch.setattr(OpenParquet, "read_row_groups", lambda *_: pytest.fail("decoded again"))
    assert second.read(1).length > 0
    before = kept(cache)[0].stat().st_ino
    code = (
        "import sys; from tests.assemble.test_shared_rows import *; "
        "check_rows(reader_of(Path(sys.argv[1])))"
    )
    subprocess.run([sys.executable, "-c", code, str(root)], check=True)

    assert [path.stat().st_ino for path in kept(cache)] == [before]


def test_a_changed_file_is_decoded_anew(root: Path, cache: Path) -> None:
    """Size and time of the file, and the columns, are what it is known by."""
    check_rows(reader_of(root))
    table = pq.read_table(root / DATA)
    place, key = table.schema.get_field_index("action"), "action"
    zeros = pa.array(np.zeros_like(np.array(table[key].to_pylist())).tolist(), table[key].type)
    pq.write_table(table.set_column(place, table.schema.field(place), zeros), root / DATA)

    assert not reader_of(root).read(0).numbers[key].any()
    assert len(kept(cache)) == 2


def test_images_are_not_shared_unasked(root: Path, cache: Path) -> None:
    """Unless asked to, a reader of encoded images reads row groups, however they are cut."""
    rows = reader_of(root, "observation.images.top").read(1)

    assert "observation.images.top" in rows.objects
    assert kept(cache) == []


def test_groups_that_are_episodes_are_not_shared(cache: Path) -> None:
    """Where each episode has its group there is nothing to gain."""
    check_rows(reader_of(FIXTURES / "images"))

    assert kept(cache) == []


@pytest.mark.parametrize("trouble", ["no room", "no folder", "foreign folder", "full", "damaged"])
def test_without_a_cache_rows_are_read_as_ever(
    root: Path,
    cache: Path,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever is wrong with the cache costs speed, and one warning, but no row."""
    if trouble == "no room":
        monkeypatch.setenv("ROBOSTREAM_CACHE_LIMIT", "100")
    elif trouble == "no folder":
        cache.parent.write_text("a file")
    elif trouble == "foreign folder":
        cache.mkdir(parents=True)
        (cache / "notes.txt").write_text("mine")
    elif trouble == "full":
        monkeypatch.setattr(os, "posix_fallocate", _refuse)
    else:
        check_rows(reader_of(root))
        kept(cache)[0].write_bytes(b"not Arrow")
    check_rows(reader_of(root))

    assert len(caplog.records) == 1


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)


@pytest.mark.parametrize("damage", ["start", "values", "end", "cut", "empty", "foreign"])
def test_damaged_rows_are_decoded_again(
    root: Path, cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A flipped bit, a cut or another file's rows cost one decoding and one warning, no value."""
    action = reader_of(root).read(1).numbers["action"].tobytes()
    (path,) = kept(cache)
    content = path.read_bytes()
    if damage in ("cut", "empty"):
        os.truncate(path, len(content) - 4096 if damage == "cut" else 0)
    elif damage == "foreign":
        reader_of(root, "observation.images.top").read(1, maps_images=True)
        (other,) = set(kept(cache)) - {path}
        shutil.copy(other, path)
    else:
        at = {"start": 8, "values": content.index(action) + 3, "end": len(content) - 20}[damage]
        _flip(path, at)
    check_rows(reader_of(root))

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert path.read_bytes() == content
    check_rows(reader_of(root))


def test_rows_and_images_that_lie_in_several_blocks(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks need not end where episodes do; each is checked when it is first read."""
    monkeypatch.setattr(shared_rows, "_BLOCK_BYTES", 20_000)
    reader = reader_of(root, "observation.images.top")
    wanted = [reader.read(episode) for episode in range(3)]
    reader.read(0, maps_images=True)
    for rows in wanted:
        found = reader.read(rows.episode, maps_images=True)
        for key, values in rows.numbers.items():
            np.testing.assert_array_equal(found.numbers[key], values, key)
        images = found.objects["observation.images.top"]
        assert isinstance(images, pa.ChunkedArray)
        assert images.to_pylist() == rows.objects["observation.images.top"].to_pylist()


def _refuse(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_limit_of_nothing_turns_sharing_off(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ROBOSTREAM_CACHE_LIMIT=0 is a wish and no trouble."""
    monkeypatch.setenv("ROBOSTREAM_CACHE_LIMIT", "0")
    check_rows(reader_of(root))

    assert caplog.records == []
    assert not cache.exists()


def test_rows_stay_readable_after_their_file_went(root: Path, cache: Path) -> None:
    """Who has mapped a file that is deleted by hand keeps its bytes."""
    reader = reader_of(root)
    rows = reader.read(1).numbers["action"]
    before = rows.copy()
    shutil.rmtree(cache)

    np.testing.assert_array_equal(rows, before)
    check_rows(reader)
