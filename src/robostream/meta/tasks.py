# SPDX-License-Identifier: Apache-2.0
"""meta/tasks.parquet: the task texts, in the order of their task_index."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from robostream.errors import MetadataError


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


def tasks_from_arrow(table: pa.Table, where: str) -> TaskTable:
    """Return the tasks of a tasks.parquet, whichever name its text column has."""
    names = [name for name in table.column_names if name != "task_index"]
    if "task_index" not in table.column_names or not names:
        raise MetadataError(
            f"{where}: want the columns task_index and task, found {table.column_names}"
        )
    text_column = "task" if "task" in names else names[0]
    indices = table.column("task_index").to_numpy()
    if not np.array_equal(np.sort(indices), np.arange(len(indices))):
        raise MetadataError(
            f"{where}: task_index must count from 0 to {len(indices) - 1}, found {indices.tolist()}"
        )
    texts = table.column(text_column).to_pylist()
    return TaskTable([texts[row] for row in np.argsort(indices)])


def tasks_to_arrow(texts: Sequence[str]) -> pa.Table:
    """Return the table of tasks.parquet, which pandas reads as a frame indexed by the text."""
    table = pa.table(
        {
            "task_index": pa.array(range(len(texts)), pa.int64()),
            "task": pa.array(texts, pa.string()),
        }
    )
    columns = [
        {
            "name": name,
            "field_name": name,
            "pandas_type": pandas_type,
            "numpy_type": numpy_type,
            "metadata": None,
        }
        for name, pandas_type, numpy_type in (
            ("task_index", "int64", "int64"),
            ("task", "unicode", "object"),
        )
    ]
    column_index = {
        "name": None,
        "field_name": None,
        "pandas_type": "unicode",
        "numpy_type": "object",
        "metadata": {"encoding": "UTF-8"},
    }
    pandas = {
        "index_columns": ["task"],
        "column_indexes": [column_index],
        "columns": columns,
        "creator": {"library": "pyarrow", "version": pa.__version__},
        "pandas_version": "2.3.3",
    }
    return table.replace_schema_metadata({"pandas": json.dumps(pandas)})
