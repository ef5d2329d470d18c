# SPDX-License-Identifier: Apache-2.0
"""From Arrow columns to the arrays samples are cut from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream.errors import DataFileError


def numeric_column(
    column: pa.ChunkedArray, shape: tuple[int, ...], *, key: str, where: str
) -> npt.NDArray[Any]:
    """Return a column as one array of (rows, *shape): float32, int64 or bool, nothing else.

    These are the dtypes LeRobot's reader gives (values pass through Python numbers there). A shape
    of (1,) means a plain number, so the array has one axis.
    """
    rows = len(column)
    inner: tuple[int, ...] = () if shape == (1,) else shape
    flat = _flatten(column)
    if flat.null_count or len(flat) != rows * int(np.prod(inner, dtype=np.int64)):
        raise DataFileError(
            f"{where}: column {key!r} holds {len(flat)} values ({flat.null_count} of them null) in "
            f"{rows} rows; info.json declares shape {shape}. The file and meta/ do not match."
        )
    values = flat.to_numpy(zero_copy_only=False)
    return np.ascontiguousarray(values, dtype=_torch_like(values.dtype)).reshape(rows, *inner)


def language_value(value: Any) -> Any:
    """Return a language cell with its tool calls parsed from JSON."""
    for entry in value or []:
        calls = entry.get("tool_calls")
        if calls:
            entry["tool_calls"] = [json.loads(c) if isinstance(c, str) else c for c in calls]
    return value


def _torch_like(dtype: np.dtype[Any]) -> type[np.generic]:
    if dtype.kind == "b":
        return np.bool_
    return np.float32 if dtype.kind == "f" else np.int64


def _flatten(column: pa.ChunkedArray) -> pa.Array:
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else array.type.empty()
    while True:
        if isinstance(array.type, pa.ExtensionType):
            array = array.storage
        elif pa.types.is_nested(array.type) and not pa.types.is_struct(array.type):
            array = array.flatten()
        else:
            return array
