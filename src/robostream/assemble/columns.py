# SPDX-License-Identifier: Apache-2.0
"""From Arrow columns to the arrays samples are cut from; what does not fit info.json is refused."""

from __future__ import annotations

import bisect
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from robostream.errors import DataFileError

Numbers = npt.NDArray[Any]

_CURE = "Copy the file again, or correct the feature in info.json: the two do not match."
# Tests of Arrow types: what a column may be stored as.
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_NUMBERS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
_OBJECTS = {
    "string": (pa.types.is_string, pa.types.is_large_string),
    "image": (pa.types.is_binary, pa.types.is_large_binary),
    "language": _LISTS,
}


@dataclass(frozen=True, slots=True)
class ColumnCase:
    """A column of one episode and what info.json declares of it.

    Attributes:
        key: Its name.
        dtype: The declared dtype.
        shape: The declared shape; (1,) means a plain number.
        where: The file and the episode, for messages.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    where: str

    def refuse(self, found: str, frame: int | None = None) -> NoReturn:
        """Raise DataFileError that says what was found, and in which frame."""
        place = self.where if frame is None else f"{self.where}, frame {frame}"
        raise DataFileError(
            f"{place}: column {self.key!r} holds {found}; info.json declares {self.dtype} of shape "
            f"{self.shape}. {_CURE}"
        )


def numeric_column(column: pa.ChunkedArray, case: ColumnCase) -> Numbers:
    """Return a column as one array of (rows, *shape): float32, int64 or bool, nothing else.

    LeRobot casts a column to its declared dtype, refusing values that this dtype cannot hold, and
    passes them through Python numbers, which leaves these three dtypes. So does this: 2.0 in a
    column of integers is 2, and 1.5 is an error. It is stricter in two ways: a text is never read
    as a number, and a bool is 0 or 1 only.
    """
    inner: tuple[int, ...] = () if case.shape == (1,) else case.shape
    flat = _flatten(column, case)
    if not _is_number(flat.type):
        case.refuse(f"values of type {flat.type}")
    if pa.types.is_float16(flat.type):
        flat = pa.array(flat.to_numpy().astype(np.float32))
    cast = _caster(np.dtype(case.dtype))
    try:
        values = cast(flat)
    except pa.ArrowInvalid as error:
        place = _first_refused(flat, cast)
        case.refuse(f"{flat[place].as_py()!r} ({error})", place * len(column) // len(flat))
    return np.ascontiguousarray(values).reshape(len(column), *inner)


def object_column(
    column: pa.ChunkedArray, case: ColumnCase, *, copy: bool
) -> pa.Array | pa.ChunkedArray:
    """Return a column of texts, language lists or encoded pictures; the former two are checked.

    A slice keeps the whole table's memory alive; a copy holds its own bytes only. Pictures that
    are not to be copied stay in the chunks they are in.
    """
    if case.dtype == "image" and pa.types.is_struct(column.type):
        if "bytes" not in column.type.names:
            case.refuse(f"values of type {column.type}")
        column = pa.chunked_array(
            [c.field("bytes") for c in column.chunks], column.type.field("bytes").type
        )
    if not any(test(column.type) for test in (*_OBJECTS[case.dtype], pa.types.is_null)):
        case.refuse(f"values of type {column.type}")
    if copy:
        column = column.take(pa.array(range(len(column)), pa.int64()))
    elif case.dtype == "image" and column.num_chunks > 1:
        return column
    array = _in_one_piece(column)
    if case.dtype == "language":
        _check_language(array, case)
    elif case.dtype == "string":
        _check_texts(array, case)
    return array


def language_value(value: Any) -> Any:
    """Return a checked language cell with its tool calls parsed from JSON."""
    for entry in value or []:
        calls = entry.get("tool_calls")
        if calls:
            entry["tool_calls"] = [json.loads(c) if isinstance(c, str) else c for c in calls]
    return value


def _check_language(array: pa.Array, case: ColumnCase) -> None:
    """Refuse what is no list of records, and tool calls that are no list of JSON texts or dicts."""
    if pa.types.is_null(array.type):
        return
    _check_texts(array, case)
    frames, records = pc.list_parent_indices(array), array.flatten()
    if records.null_count:
        case.refuse("a null in place of a record", frames[records.is_null().index(True)].as_py())
    if not len(records):
        return
    if not pa.types.is_struct(records.type):
        case.refuse(f"values of type {array.type} in place of lists of records")
    if "tool_calls" in records.type.names:
        _check_calls(records.field("tool_calls"), frames, case)


def _check_calls(calls: pa.Array, frames: pa.Array, case: ColumnCase) -> None:
    """Refuse tool calls that `language_value` cannot parse; `frames` has the frame of each row."""
    if pa.types.is_null(calls.type):
        return
    if not _is_list(calls.type):
        case.refuse(f"tool_calls of type {calls.type} in place of lists")
    owners, texts = pc.list_parent_indices(calls), calls.flatten()
    texts = texts.storage if isinstance(texts, pa.ExtensionArray) else texts
    if not any(test(texts.type) for test in _OBJECTS["string"]):
        return
    # Persistent records are the same in many frames.
    for text in texts.unique().drop_null().to_pylist():
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            owner = owners[texts.index(text).as_py()].as_py()
            case.refuse(
                f"a tool call that is no JSON, {text[:99]!r} ({error})", frames[owner].as_py()
            )


def _check_texts(array: pa.Array, case: ColumnCase) -> None:
    """Refuse texts that are no UTF-8: Arrow would fail on them only when they are looked at."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        case.refuse(f"texts that cannot be read ({error})")


def _flatten(column: pa.ChunkedArray, case: ColumnCase) -> pa.Array:
    """Return the numbers of all rows, each list on the way checked to be of its declared length."""
    array = _storage(_in_one_piece(column))
    # Some recorders store a shape of (1,) as lists of one number.
    is_plain = case.shape == (1,) and not _is_list(array.type)
    per_row = 1
    for size in () if is_plain else case.shape:
        if not _is_list(array.type):
            case.refuse(f"values of type {column.type}")
        lengths = pc.list_value_length(array).fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != size)
        if wrong.size:
            length = lengths[wrong[0]]
            found = "a null" if length < 0 else f"a list of {length} in place of {size}"
            case.refuse(found, int(wrong[0]) // per_row)
        array = _storage(array.flatten())
        per_row *= size
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        case.refuse("a null", int(np.argmax(missing)) // per_row)
    return array


def _caster(dtype: np.dtype[Any]) -> Callable[[pa.Array], Numbers]:
    """Return what turns numbers of a declared dtype into ours, or raises ArrowInvalid."""
    if dtype.kind == "f":
        return lambda flat: _as_floats(flat, dtype)
    if dtype.kind == "b":
        return _as_bools
    declared = pa.from_numpy_dtype(dtype)
    return lambda flat: _cast(_cast(flat, declared), pa.int64()).to_numpy()


def _cast(flat: pa.Array, kind: pa.DataType) -> pa.Array:
    return flat if flat.type == kind else pc.cast(flat, kind)


def _as_floats(flat: pa.Array, dtype: np.dtype[Any]) -> Numbers:
    if not pa.types.is_floating(flat.type):
        flat = pc.cast(flat, pa.float64() if dtype.itemsize > 4 else pa.float32())
    # Rounding is what a float dtype promises, up to infinity: LeRobot does it without a word too.
    with np.errstate(over="ignore"):
        values: Numbers = flat.to_numpy().astype(dtype, copy=False)
        return values.astype(np.float32, copy=False)


def _as_bools(flat: pa.Array) -> Numbers:
    if pa.types.is_boolean(flat.type):
        values: Numbers = flat.to_numpy(zero_copy_only=False)
        return values
    numbers: Numbers = pc.cast(flat, pa.int64()).to_numpy()
    if ((numbers != 0) & (numbers != 1)).any():
        raise pa.ArrowInvalid("a bool is 0 or 1")
    return numbers.astype(np.bool_)


def _first_refused(flat: pa.Array, cast: Callable[[pa.Array], Numbers]) -> int:
    """Return the place of the first value that a cast refuses."""

    def is_refused(stop: int) -> bool:
        try:
            cast(flat.slice(0, stop))
        except pa.ArrowInvalid:
            return True
        return False

    return bisect.bisect_left(range(1, len(flat)), True, key=is_refused)


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.ExtensionType) else array


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _LISTS)


def _is_number(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _NUMBERS)
