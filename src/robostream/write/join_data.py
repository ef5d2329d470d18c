# SPDX-License-Identifier: Apache-2.0
"""Writing rows as Parquet the way LeRobot's recorder does: one row group per episode."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

# As LeRobot's recorder does; and checksums, so that a reader can tell a page that was damaged.
PARQUET_OPTIONS = {"compression": "snappy", "use_dictionary": True, "write_page_checksum": True}


def read_rows(path: Path) -> pa.Table:
    """Return all rows of a file; a damaged page is an error of pyarrow's."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        return file.read(use_threads=False)


def write_rows(table: pa.Table, target: Path) -> int:
    """Write one episode's rows and return the compressed bytes of its row group."""
    with _writer(target, table.schema) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
    group = pq.read_metadata(target).row_group(0)
    return sum(group.column(i).total_compressed_size for i in range(group.num_columns))


def join_rows(parts: Sequence[Path], target: Path) -> None:
    """Write the rows of several episodes into one file, one row group each."""
    with _writer(target, pq.read_schema(parts[0])) as writer:
        for part in parts:
            table = read_rows(part)
            writer.write_table(table, row_group_size=max(1, table.num_rows))


def split_rows(joined: Path, targets: Sequence[Path]) -> None:
    """Write each episode of a joined file into a file of its own: the reverse of `join_rows`."""
    with pq.ParquetFile(joined, page_checksum_verification=True) as file:
        for group, target in enumerate(targets):
            write_rows(file.read_row_group(group), target)


def _writer(target: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(target, schema, **PARQUET_OPTIONS)
