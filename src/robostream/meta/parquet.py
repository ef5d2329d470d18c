# SPDX-License-Identifier: Apache-2.0
"""Parquet files: read in the calling thread, within a memory budget, with errors naming a cure.

Also meta/tasks.parquet: the task texts, in the order of their task_index.
"""

from __future__ import annotations

import json
import logging
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.errors import DamagedFileError, DataFileError, MetadataError, StorageError
from robostream.meta.decoded_size import READ_OPTIONS, DecodeBudget, DecodedSize, chunk_range
from robostream.storage import (
    ByteRange,
    ByteSource,
    Cache,
    SourceFile,
    choose_gap,
    discard_mapped_file,
    open_mapped_file,
)

logger = logging.getLogger(__name__)

# A file may always decode to this many times its own size.
_GROWTH = 4
_CURE = "Copy or download the file again, or restore it from a backup."
# A lean read fetches at most this share more than the columns, with so many parallel requests.
_MOST_WASTE = 0.1
_LEAN_REQUESTS = 16
_CACHED_FORMAT = "columns 1"
# The memory of a task as Python objects: per task, and per byte of its text.
_TASK_BYTES, _BYTES_PER_LETTER = 160, 4
_CRC_BYTES = 4
_IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)


@contextmanager
def readable_parquet(where: str) -> Iterator[None]:
    """Re-raise pyarrow's errors of a broken file as DataFileError that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileError(f"{where}: the file is missing. {_CURE}") from error
    except DamagedFileError as error:
        raise DataFileError(str(error)) from error
    except StorageError:
        raise  # the bytes were not read; the file itself may be whole
    except pa.ArrowMemoryError as error:
        raise StorageError(
            f"{where}: there is not enough memory to decode it ({error}). Use fewer workers, or "
            "write the file with smaller row groups."
        ) from error
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError) as error:
        text = str(error).strip().splitlines()
        reason = text[0] if text else type(error).__name__
        raise DataFileError(
            f"{where}: not a readable Parquet file ({reason}). It may be truncated, or written by "
            f"a recorder that was stopped before finalize(). {_CURE}"
        ) from error


def check_unique(names: Sequence[str], where: str) -> None:
    """Raise MetadataError if a file has two columns of one name."""
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise MetadataError(
            f"{where}: want columns of different names, found more than one {', '.join(twice)}. "
            "Write the file again without the ones that are not meant."
        )


class OpenParquet(pq.ParquetFile):  # type: ignore[misc]  # pyarrow has no types
    """A Parquet file that the calling thread reads and decodes, with its checksums verified.

    Raises DataFileError if it cannot be opened.

    Arrow's own threads release buffers a moment after a read returns. A buffer owned by Python
    would abort the program if the interpreter has ended by then.
    """

    def __init__(
        self,
        source: ByteSource,
        *,
        at_once: bool = False,  # read all bytes now
        columns_together: bool = False,  # one request fetches all columns of row groups
        is_lean: bool = False,  # `read` fetches little more than the columns, with many requests
    ) -> None:
        self._columns_together = columns_together
        self._is_lean = is_lean
        with readable_parquet(source.name):
            self._bytes = SourceFile(source)
            self._num_bytes = source.size()
            if at_once:
                _check_fetched(self._num_bytes, source.name)
            self._file = BytesIO(source.read(0, self._num_bytes)) if at_once else self._bytes
            super().__init__(self._file, **READ_OPTIONS)
            self._decoded_size = DecodedSize(self._file, self.metadata, source.name)

    def read(self, columns: Sequence[str], budget: DecodeBudget) -> pa.Table:
        """Return columns of all rows, counted against the budget first."""
        wanted = self._ranges(range(self.num_row_groups), columns) if self._is_lean else []
        _check_fetched(sum(part.stop - part.start for part in wanted), self._bytes.name)
        gap, used = choose_gap(wanted, _MOST_WASTE), budget.used
        with self._bytes.preloaded(wanted, max_gap_bytes=gap, requests=_LEAN_REQUESTS):
            self._decoded_size.take(range(self.num_row_groups), columns, budget)
            table = super().read(columns, use_threads=False)
        budget.correct(used + table.nbytes)
        return table

    def read_row_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return columns of row groups."""
        wanted = self._ranges(groups, columns) if self._columns_together else []
        own_limit = min(_GROWTH * self._num_bytes, config.MOST_ROW_GROUP_BYTES)
        budget = DecodeBudget(max(config.decode_limit_bytes(), own_limit))
        with self._bytes.preloaded(wanted):
            self._decoded_size.take(groups, columns, budget)
            return super().read_row_groups(groups, columns, use_threads=False)

    def byte_span(self, groups: Sequence[int]) -> tuple[int, int]:
        """Return the bytes [start, stop) of row groups with all of their columns."""
        ranges = self._ranges(groups, None)
        return min(r.start for r in ranges), max(r.stop for r in ranges)

    def _ranges(self, groups: Sequence[int], columns: Sequence[str] | None) -> list[ByteRange]:
        """Return the byte ranges of columns, or of all columns, of row groups."""
        # The leaf of a list has a path below its name. This may also match a column whose name
        # continues after a point.
        names = ("",) if columns is None else tuple(f"{name}." for name in columns)
        if not self.num_row_groups:
            return []
        first = self.metadata.row_group(0)
        paths = [first.column(at).path_in_schema for at in range(first.num_columns)]
        places = [at for at, path in enumerate(paths) if f"{path}.".startswith(names)]
        found = map(self.metadata.row_group, groups)
        chunks = (group.column(at) for group in found for at in places)
        ranges = [ByteRange(*chunk_range(chunk)) for chunk in chunks]
        if any(not 0 <= r.start <= r.stop <= self._num_bytes for r in ranges):
            raise DataFileError(
                f"{self._bytes.name}: its footer names bytes that the file of {self._num_bytes:,} "
                f"bytes does not have. {_CURE}"
            )
        return ranges


def _check_fetched(size: int, name: str) -> None:
    limit = config.decode_limit_bytes()
    if size > limit:
        raise DataFileError(
            f"{name}: want at most {format_bytes(limit)} in a file of meta/, found "
            f"{format_bytes(size)}. If the file is meant to be so large, set "
            f"{config.DECODE_LIMIT_NAME} to more."
        )


def cache_table(cache: Cache, source: ByteSource, read: Callable[[], pa.Table]) -> pa.Table:
    """Return the table that `read` returns for a file, cached for later processes."""
    made: list[pa.Table] = []

    def make() -> tuple[int, Callable[[BinaryIO], None]]:
        made.append(read())
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, made[0].schema) as writer:
            writer.write_table(made[0].combine_chunks())
        content = memoryview(sink.getvalue())
        head = zlib.crc32(content).to_bytes(_CRC_BYTES, "little")
        return len(head) + len(content), lambda file: file.writelines((head, content))

    version = repr((_CACHED_FORMAT, source.size(), source.version()))
    cached = open_mapped_file(cache, source.identity, version, make)
    if made or cached is None:
        return made[0] if made else read()
    content = memoryview(cached.path.read_bytes())
    if zlib.crc32(content[_CRC_BYTES:]) == int.from_bytes(content[:_CRC_BYTES], "little"):
        return pa.ipc.open_stream(content[_CRC_BYTES:], options=_IN_THIS_THREAD).read_all()
    logger.warning("%s is damaged; reading %s again", cached.path, source.name)
    discard_mapped_file(cache, cached)
    return read()


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
    indices = pa.array(range(len(texts)), pa.int64())
    table = pa.table({"task_index": indices, "task": pa.array(texts, pa.string())})
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
