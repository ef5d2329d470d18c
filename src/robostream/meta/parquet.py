# SPDX-License-Identifier: Apache-2.0
"""Opening Parquet so that a broken file is told as such, with its name and the cure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq

from robostream.errors import DamagedFileError, DataFileError, MetadataError, StorageError
from robostream.storage import ByteRange, ByteSource, SourceFile

_CURE = "Copy or download the file again, or restore it from a backup."


@contextmanager
def readable_parquet(where: str) -> Iterator[None]:
    """Turn what pyarrow raises on a broken file into a DataFileError that names it."""
    try:
        yield
    except FileNotFoundError as error:
        raise DataFileError(f"{where}: the file is missing. {_CURE}") from error
    except DamagedFileError as error:
        raise DataFileError(str(error)) from error
    except StorageError:
        raise  # the bytes did not come; the file itself may be whole
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
    """A file that is read and decoded by the thread that asks; its checksums are compared.

    Arrow's own threads let go of what they read a moment after it was asked for. If that is memory
    of Python's, and Python has ended by then, the program is aborted.

    Args:
        source: Its bytes.
        at_once: Whether all of them are read now.
        columns_together: Whether those of the columns of row groups are asked for together.
    """

    def __init__(self, source: ByteSource, *, at_once: bool, columns_together: bool) -> None:
        self._bytes = SourceFile(source)
        self._columns_together = columns_together
        file = BytesIO(source.read(0, source.size())) if at_once else self._bytes
        super().__init__(file, pre_buffer=False, page_checksum_verification=True)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns, or all."""
        return super().read(columns, use_threads=False)

    def read_row_groups(self, groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return columns of row groups."""
        wanted = self._ranges(groups, columns) if self._columns_together else []
        with self._bytes.held(wanted):
            return super().read_row_groups(groups, columns, use_threads=False)

    def byte_span(self, groups: Sequence[int]) -> tuple[int, int]:
        """Return the bytes [start, stop) that hold row groups, with all of their columns."""
        ranges = self._ranges(groups, None)
        return min(r.start for r in ranges), max(r.stop for r in ranges)

    def _ranges(self, groups: Sequence[int], columns: Sequence[str] | None) -> list[ByteRange]:
        """Return where columns of row groups, or all, lie."""
        # A list is stored as a column below its name. Another column whose name goes on after a
        # point may come along.
        names = ("",) if columns is None else tuple(f"{name}." for name in columns)
        found = [self.metadata.row_group(group) for group in groups]
        chunks = [group.column(at) for group in found for at in range(group.num_columns)]
        return [
            ByteRange(start, start + chunk.total_compressed_size)
            for chunk in chunks
            if f"{chunk.path_in_schema}.".startswith(names)
            for start in [chunk.dictionary_page_offset or chunk.data_page_offset]
        ]


def open_parquet(
    source: ByteSource, *, at_once: bool = False, columns_together: bool = False
) -> OpenParquet:
    """Return the opened file, or raise DataFileError; `OpenParquet` says what the arguments are."""
    with readable_parquet(source.name):
        return OpenParquet(source, at_once=at_once, columns_together=columns_together)
