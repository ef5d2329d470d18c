# SPDX-License-Identifier: Apache-2.0
"""Rows at hand: one budget for all columns, and images mapped where it is too small for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from robostream.assemble import (
    DatasetLocation,
    EpisodeRows,
    OpenedDataset,
    RowCache,
    SampleOptions,
    choose_cache,
    new_row_lru,
    open_dataset,
)
from robostream.meta import OpenParquet, tasks_to_arrow
from tests.fixture_datasets import FIXTURES, copy_of

CAMERA = "observation.images.top"
ROOMY = 1 << 30
EPISODES = (0, 1, 2, 1, 0, 2, 0, 1, 2)
DATA = "data/chunk-000/file-000.parquet"
EPISODES_FILE = "meta/episodes/chunk-000/file-000.parquet"


pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[tuple[int, ...]]:
    """How often each row group is read."""
    counts: Counter[tuple[int, ...]] = Counter()
    read = OpenParquet.read_row_groups

    def counted(file: OpenParquet, groups: Sequence[int], columns: Sequence[str]) -> Any:
        counts.update([tuple(groups)] if groups else [])
        return read(file, groups, columns)

    monkeypatch.setattr(OpenParquet, "read_row_groups", counted)
    return counts


def opened(root: Path) -> OpenedDataset:
    return open_dataset(
        DatasetLocation("some/name", root, cache=choose_cache(None, None)), SampleOptions()
    )


def row_cache_of(dataset: OpenedDataset, keys: list[str], budget_bytes: int) -> RowCache:
    opener = dataset.file_opener()
    return RowCache(dataset, opener, keys, new_row_lru(budget_bytes), checks_times=False)


def same_rows(found: EpisodeRows, wanted: EpisodeRows) -> bool:
    images = found.objects[CAMERA].equals(wanted.objects[CAMERA])
    return images and all(
        np.array_equal(found.numbers[key], column) for key, column in wanted.numbers.items()
    )


def in_one_group(root: Path) -> Path:
    pq.write_table(pq.read_table(root / DATA), root / DATA)
    return root


@pytest.mark.parametrize("is_one_group", [False, True])
def test_images_that_do_not_fit_are_mapped(
    is_one_group: bool, tmp_path: Path, cache: Path, reads: Counter[tuple[int, ...]]
) -> None:
    """No row group is read again and again; what is mapped is what was read."""
    root = copy_of("images", tmp_path)
    dataset = opened(in_one_group(root) if is_one_group else root)
    roomy = row_cache_of(dataset, [CAMERA], ROOMY)
    wanted = [roomy.get(episode) for episode in EPISODES]
    budget = sum(roomy.get(episode).nbytes for episode in range(3)) - 1
    reads.clear()
    row_cache = row_cache_of(dataset, [CAMERA], budget)
    found = [row_cache.get(episode) for episode in EPISODES]

    assert all(map(same_rows, found, wanted))
    assert [rows.mapped is None for rows in found[:3]] == [True, True, True]
    assert found[4].mapped is not None
    # Each once into memory, and twice for the file that is mapped: its size comes first.
    assert sorted(reads.values()) == [3] * (1 if is_one_group else 3)
    assert len(list(cache.glob("files/*"))) == 1


def test_images_that_fit_stay_in_memory(cache: Path, reads: Counter[tuple[int, ...]]) -> None:
    """Each row group is read once, and nothing is written to disk."""
    row_cache = row_cache_of(opened(FIXTURES / "images"), [CAMERA], ROOMY)
    for episode in EPISODES:
        row_cache.get(episode)

    assert reads.total() == 3
    assert list(cache.glob("files/*")) == []


def test_without_a_cache_rows_are_read_again(
    monkeypatch: pytest.MonkeyPatch, reads: Counter[tuple[int, ...]]
) -> None:
    """Slower, and right."""
    monkeypatch.setenv("ROBOSTREAM_CACHE_LIMIT", "0")
    dataset = opened(FIXTURES / "images")
    roomy = row_cache_of(dataset, [CAMERA], ROOMY)
    budget = sum(roomy.get(episode).nbytes for episode in range(3)) - 1
    reads.clear()
    row_cache = row_cache_of(dataset, [CAMERA], budget)

    assert all(same_rows(row_cache.get(episode), roomy.get(episode)) for episode in EPISODES)
    assert reads.total() > 3


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (range(27), None),
        ([7] * 27, "frame 0 of episode 0 has the index 7, want 0"),
        ([*range(11), 12, 11, *range(13, 27)], "frame 2 of episode 1 has the index 12, want 11"),
        (range(100, 127), "frame 0 of episode 0 has the index 100, want 0"),
    ],
)
def test_rows_that_count_from_elsewhere_are_said_once(
    index: Sequence[int], said: str | None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is looked up by them, and datasets that were put together by hand have such."""
    root = copy_of("images", tmp_path)
    table = pq.read_table(root / DATA)
    place = table.column_names.index("index")
    pq.write_table(table.set_column(place, "index", pa.array(index)), root / DATA)
    dataset = opened(root)
    row_cache = RowCache(dataset, dataset.file_opener(), [], new_row_lru(ROOMY), checks_times=True)
    for episode in EPISODES:
        row_cache.get(episode)

    assert len(caplog.records) == (said is not None)
    assert said is None or said in caplog.text


@pytest.mark.parametrize(
    ("tasks", "listed", "wanted"),
    [
        (["stack the cups", "open the drawer"], "tasks", []),
        (
            ["open the drawer", "stack the cups"],
            "tasks",
            [(0, "open the drawer", "stack the cups")],
        ),
        (["stack the cups", "open a drawer"], "tasks", [(1, "open a drawer", "open the drawer")]),
        (["open the drawer", "stack the cups"], "another column", []),
    ],
)
def test_tasks_of_another_dataset_are_said_once(
    tasks: list[str],
    listed: str,
    wanted: list[tuple[int, str, str]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Texts may be edited by hand, so they are delivered; the first episode is named with both."""
    root = copy_of("images", tmp_path)
    pq.write_table(tasks_to_arrow(tasks), root / "meta/tasks.parquet")
    episodes = pq.read_table(root / EPISODES_FILE)
    pq.write_table(episodes.rename_columns({"tasks": listed}), root / EPISODES_FILE)
    dataset = opened(root)
    row_cache = RowCache(dataset, dataset.file_opener(), [], new_row_lru(ROOMY), checks_times=True)
    for episode in EPISODES:
        row_cache.get(episode)

    assert [record.getMessage().partition(" in meta/episodes")[0] for record in caplog.records] == [
        f"{root}: the task of episode {episode} is {text!r} in meta/tasks.parquet, but {other!r}"
        for episode, text, other in wanted
    ]


def test_row_caches_share_a_budget() -> None:
    """What one needs little of is there for the other, and all together keep within it."""
    dataset = opened(FIXTURES / "images")
    lru = new_row_lru(ROOMY)
    opener = dataset.file_opener()
    row_caches = [
        RowCache(dataset, opener, keys, lru, checks_times=False) for keys in ([CAMERA], ["action"])
    ]
    rows = [row_cache.get(episode) for row_cache in row_caches for episode in range(3)]

    assert lru.weight == sum(one.nbytes for one in rows)
    assert [row_cache.get(episode) for row_cache in row_caches for episode in range(3)] == rows
