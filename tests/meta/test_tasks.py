# SPDX-License-Identifier: Apache-2.0
"""Task tables that other writers made."""

from __future__ import annotations

import pyarrow as pa
import pytest

from robostream.errors import MetadataError
from robostream.meta.parquet import tasks_from_arrow

INDICES = pa.array([1, 0])
TEXTS = pa.array(["open", "stack"])
NOTES = pa.array(["by Ann", "by Bob"])


@pytest.mark.parametrize(
    "columns",
    [
        {"task_index": INDICES, "task": TEXTS},
        {"note": NOTES, "task": TEXTS, "task_index": INDICES, "__index_level_0__": NOTES},
        {"note": NOTES, "task_index": INDICES, "__index_level_0__": TEXTS},
        {"task_index": INDICES.cast(pa.uint8()), "text": TEXTS.cast(pa.large_string())},
        {"task_index": INDICES, "times": pa.array([3, 4]), "text": TEXTS.dictionary_encode()},
    ],
    ids=["usual", "task first", "pandas' index", "the only other", "the only text"],
)
def test_the_column_of_the_texts_is_found(columns: dict[str, pa.Array]) -> None:
    """It is called task, is pandas' index, or is the only one that holds texts."""
    assert tasks_from_arrow(pa.table(columns), "tasks.parquet").index == ["stack", "open"]


def test_two_tasks_of_one_text() -> None:
    """They do not mislead: each index has its text."""
    table = pa.table({"task_index": INDICES, "task": pa.array(["open", "open"])})

    assert tasks_from_arrow(table, "tasks.parquet").index == ["open", "open"]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([("task_index", INDICES)], "want the columns task_index"),
        ([("task", TEXTS)], "want the columns task_index"),
        ([("task_index", INDICES), ("note", NOTES), ("text", TEXTS)], r"note \(string\), text"),
        ([("task_index", INDICES), ("note", NOTES), ("task", INDICES)], r"task \(int64\)"),
        ([("task_index", INDICES), ("task", pa.array([b"a", b"b"]))], r"task \(binary\)"),
        ([("task_index", INDICES), ("task", pa.array([["a"], ["b"]]))], r"task \(list"),
        ([("task_index", INDICES), ("task", pa.nulls(2))], r"task \(null\)"),
        ([("task_index", INDICES), ("task", pa.array(["a", None]))], "none for task_index 0"),
        ([("task_index", pa.nulls(2)), ("task", TEXTS)], "of type null"),
        ([("task_index", pa.array([0, None])), ("task", TEXTS)], r"found \[0, None\]"),
        ([("task_index", pa.array(["0", "1"])), ("task", TEXTS)], "of type string"),
        ([("task_index", pa.array([1, 2])), ("task", TEXTS)], "must count from 0 to 1"),
        ([("task_index", INDICES), ("task", TEXTS), ("task", NOTES)], "more than one task"),
    ],
)
def test_tables_of_no_clear_meaning(columns: list[tuple[str, pa.Array]], message: str) -> None:
    """What is not one text for each number is told with what was found."""
    names, arrays = zip(*columns, strict=True)

    with pytest.raises(MetadataError, match=message):
        tasks_from_arrow(pa.table(list(arrays), names=list(names)), "tasks.parquet")
