# SPDX-License-Identifier: Apache-2.0
"""Sources in unusual states: other paths, leftovers, links, gaps in their statistics."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from robostream import config
from robostream.errors import WriteError
from tests.fixture_datasets import copy_of, edit_info
from tests.tools.convert.test_conversion import (
    TOP,
    WRIST,
    assert_same_items,
    convert,
    rows_file,
    video_file,
)


def test_files_of_other_templates_are_joined_too(tmp_path: Path) -> None:
    """They are no "other files", which would be in the copy twice."""
    root = copy_of("v21_videos", tmp_path)
    (root / "rows").mkdir()
    for episode in range(5):
        rows_file(root, episode).rename(root / f"rows/{episode}.parquet")
        for key in (TOP, WRIST):
            (root / key).mkdir(exist_ok=True)
            video_file(root, key, episode).rename(root / f"{key}/{episode}.mp4")
    paths = {"data_path": "rows/{episode_index}.parquet"}
    paths["video_path"] = "{video_key}/{episode_index}.mp4"
    edit_info(root, lambda info: info.update(paths))
    report = convert(root, tmp_path / "copy")

    assert (report.source_files, report.files, report.copied_files) == (15, 3, 2)
    assert {path.name for path in (tmp_path / "copy").iterdir()} == {
        *("data", "expected", "meta", "videos")
    }
    assert_same_items(root, tmp_path / "copy")


def test_an_old_table_does_not_replace_the_new_one(tmp_path: Path) -> None:
    """Such as one that another converter left in meta/episodes."""
    root = copy_of("v21_videos", tmp_path)
    for name in ("chunk-000/file-000.parquet", "chunk-000/file-001.parquet"):
        (root / "meta/episodes" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "meta/episodes" / name).write_bytes(b"of an unfinished conversion")
    convert(root, tmp_path / "copy")

    assert_same_items(root, tmp_path / "copy")


def test_a_link_to_the_dataset_in_it_is_followed_once(tmp_path: Path) -> None:
    """The copy has no copy of the dataset in it."""
    root = copy_of("v21_videos", tmp_path)
    (root / "notes").mkdir()
    (root / "notes/all").symlink_to(root)
    (root / "notes/first.txt").write_text("cups")

    assert convert(root, tmp_path / "copy").copied_files == 3
    assert [path.name for path in (tmp_path / "copy/notes").iterdir()] == ["first.txt"]


def test_statistics_that_some_episodes_lack_are_kept(tmp_path: Path) -> None:
    """Those of the others are in their rows."""
    root = copy_of("v21_videos", tmp_path)
    path = root / config.V2_STATS_PATH
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    del lines[0]["stats"]["action"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    convert(root, tmp_path / "copy")
    table = pq.read_table(tmp_path / "copy/meta/episodes/chunk-000/file-000.parquet")

    wanted = [None, *(line["stats"]["action"]["mean"] for line in lines[1:])]
    assert table.column("stats/action/mean").to_pylist() == wanted


def test_tasks_are_counted(tmp_path: Path) -> None:
    """An info.json of v2.x may have no or a wrong number; v3.0 reads no tasks if it is 0."""
    root = copy_of("v21_videos", tmp_path)
    edit_info(root, lambda info: info.pop("total_tasks"))
    convert(root, tmp_path / "copy")

    assert_same_items(root, tmp_path / "copy")


def test_a_source_named_as_the_staging_folder_is_not_touched(tmp_path: Path) -> None:
    """A conversion to `cups` would grow in `cups.converting` and remove it at its end."""
    root = copy_of("v21_videos", tmp_path).rename(tmp_path / "cups.converting")
    before = sorted(root.rglob("*"))

    with pytest.raises(WriteError, match=r"cups\.converting: want no folder.*with other files"):
        convert(root, tmp_path / "cups")
    assert sorted(root.rglob("*")) == before
