# SPDX-License-Identifier: Apache-2.0
"""meta/tasks.parquet: the task texts, in the order of their task_index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from robostream.errors import MetadataError
from robostream.meta.decoded_size import DecodeBudget
from robostream.meta.parquet import OpenParquet, check_unique, readable_parquet

# The memory of a task as Python objects: per task, and per byte of its text.
_TASK_BYTES, _BYTES_PER_LETTER = 160, 4


class TaskTable:
    """The task texts of a dataset: `tasks[task_index]` is a text, `tasks.find(text)` an index."""

    def __init__(self, texts: Sequence[str] = ()) -> None:
        self._texts = list(texts)
        self._indices = {text: index for index, text in enumerate(self._texts)}

    @property
    def index(self) -> list[str]:
        """The texts in the order of task_index, named as LeRobot's data frame names them."""
        return list(self._texts)

    def find(self, text: str) -> int | None:
        """Return the task_index of a text, or None if the dataset has no such task."""
        return self._indices.get(text)

    def __getitem__(self, task_index: int) -> str:
        return self._texts[task_index]

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __repr__(self) -> str:
        return f"TaskTable({self._texts!r})"


def read_tasks(file: OpenParquet, where: str) -> TaskTable:
    """Return the tasks of an opened tasks.parquet, without reading other columns."""
    import pyarrow.compute as pc  # on demand: workers start a tenth faster without it

    text_column = _text_column(file.schema_arrow, where)
    budget = DecodeBudget()
    with readable_parquet(where):
        table = file.read(["task_index", text_column], budget)
        letters = pc.sum(pc.binary_length(table.column(text_column).cast(pa.large_string())))
        budget.take(len(table) * _TASK_BYTES + (letters.as_py() or 0) * _BYTES_PER_LETTER, where)
        return tasks_from_arrow(table, where)


def tasks_from_arrow(table: pa.Table, where: str) -> TaskTable:
    """Return the tasks of a tasks.parquet, whichever name its text column has."""
    text_column = _text_column(table.schema, where)
    indices, texts = table.column("task_index"), table.column(text_column)
    is_numeric = pa.types.is_integer(indices.type) or pa.types.is_floating(indices.type)
    if not is_numeric or not np.array_equal(np.sort(indices), np.arange(len(indices))):
        raise MetadataError(
            f"{where}: task_index must count from 0 to {len(indices) - 1}, found "
            f"{indices.to_pylist()!s:.200} of type {indices.type}. Restore the file."
        )
    if texts.null_count:
        row = texts.to_pylist().index(None)
        raise MetadataError(
            f"{where}: want a text for each task, found none for task_index {indices[row]} in the "
            f"column {text_column}. Write it there, or restore the file."
        )
    return TaskTable(texts.take(np.argsort(indices)).to_pylist())


def _text_column(schema: pa.Schema, where: str) -> str:
    """Return the text column: "task", pandas' index, or the only text column."""
    check_unique(schema.names, where)
    texts = [field.name for field in schema if _is_text(field.type)]
    named = [name for name in ("task", "__index_level_0__") if name in schema.names]
    found = named[:1] or texts
    if "task_index" not in schema.names or len(found) != 1 or found[0] not in texts:
        columns = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise MetadataError(
            f"{where}: want the columns task_index (int64) and task (string), found {columns}. "
            "Rename the column of the texts to task, or restore the file."
        )
    return found[0]


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    is_string = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(fits(kind) for fits in is_string)


def tasks_to_arrow(texts: Sequence[str]) -> pa.Table:
    """Return the table of tasks.parquet, which pandas reads as a frame indexed by the text."""
    table = pa.table(
        {
            "task_index": pa.array(range(len(texts)), pa.int64()),
            "task": pa.array(texts, pa.string()),
        }
    )
    fields = ("name", "field_name", "pandas_type", "numpy_type", "metadata")
    described = (
        (None, None, "unicode", "object", {"encoding": "UTF-8"}),
        ("task_index", "task_index", "int64", "int64", None),
        ("task", "task", "unicode", "object", None),
    )
    column_index, *columns = (dict(zip(fields, values, strict=True)) for values in described)
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [column_index],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.3.3",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
