# SPDX-License-Identifier: Apache-2.0
"""Opening Parquet so that a broken file is told as such, with its name and the cure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robostream.errors import DamagedFileError, DataFileError, StorageError
from robostream.storage import ByteSource, SourceFile

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


def open_parquet(source: ByteSource, *, at_once: bool = False, **options: Any) -> pq.ParquetFile:
    """Return the opened file, or raise DataFileError.

    Args:
        source: Its bytes.
        at_once: Whether they are all read now, which saves a request for each column.
        options: Passed to pyarrow.
    """
    with readable_parquet(source.name):
        file = BytesIO(source.read(0, source.size())) if at_once else SourceFile(source)
        return pq.ParquetFile(file, **options)
