# SPDX-License-Identifier: Apache-2.0
"""From Arrow columns to checked arrays; columns that do not match info.json raise DataFileError."""

from __future__ import annotations

import bisect
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream.errors import DataFileError
from robostream.meta import LANGUAGE_KEYS, LeRobotDatasetMetadata, OpenParquet

Numbers = npt.NDArray[Any]

# Predicates of Arrow types: how a column may be stored.
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
_NUMBERS = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
_OBJECTS = {
    "string": (pa.types.is_string, pa.types.is_large_string),
    "image": (pa.types.is_binary, pa.types.is_large_binary),
    "language": _LISTS,
}


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column as info.json declares it."""

    key: str
    dtype: str
    shape: tuple[int, ...]  # the declared shape; (1,) means a plain number
    where: str  # the file and the episode, for messages

    def refuse(self, found: str, frame: int | None = None) -> NoReturn:
        """Raise DataFileError that names what was found, and in which frame."""
        place = self.where if frame is None else f"{self.where}, frame {frame}"
        raise DataFileError(
            f"{place}: column {self.key!r} holds {found}; info.json declares {self.dtype} of shape "
            f"{self.shape}. Copy the file again, or correct the feature in info.json: the two do "
            "not match."
        )


def numeric_column(column: pa.ChunkedArray, declared: DeclaredColumn) -> Numbers:
    """Return a column as one array of (rows, *shape) in float32, int64 or bool.

    As in LeRobot, values are cast to the declared dtype, which must hold them, and then to one of
    these three: 2.0 in a column of integers is 2, and 1.5 is an error. Two rules are stricter: a
    text is never read as a number, and a bool is 0 or 1 only.
    """
    inner: tuple[int, ...] = () if declared.shape == (1,) else declared.shape
    flat = _flatten(column, declared)
    if not any(test(flat.type) for test in _NUMBERS):
        declared.refuse(f"values of type {flat.type}")
    if pa.types.is_float16(flat.type):
        flat = pa.array(flat.to_numpy().astype(np.float32))
    dtype = np.dtype(declared.dtype)
    try:
        values = _convert(flat, dtype)
    except pa.ArrowInvalid as error:
        place = _first_refused(flat, dtype)
        declared.refuse(f"{flat[place].as_py()!r} ({error})", place * len(column) // len(flat))
    return np.ascontiguousarray(values).reshape(len(column), *inner)


def check_schema(schema: pa.Schema, key: str, entry: Mapping[str, Any]) -> None:
    """Raise DataFileError if a column's type cannot hold what info.json declares. Reads no row."""
    declared = DeclaredColumn(key, entry["dtype"], entry["shape"], "the file")
    column = schema.empty_table().column(key)
    if declared.dtype in _OBJECTS:
        object_column(column, declared, copy=False)
    else:
        numeric_column(column, declared)


def object_column(
    column: pa.ChunkedArray, declared: DeclaredColumn, *, copy: bool
) -> pa.Array | pa.ChunkedArray:
    """Return a column of checked texts or language lists, or of encoded images.

    A slice keeps the memory of the whole table alive; a copy holds only its own bytes. Images that
    are not copied stay in their chunks.
    """
    if declared.dtype == "image" and pa.types.is_struct(column.type):
        if "bytes" not in column.type.names:
            declared.refuse(f"values of type {column.type}")
        column = pa.chunked_array(
            [c.field("bytes") for c in column.chunks], column.type.field("bytes").type
        )
    if not any(test(column.type) for test in (*_OBJECTS[declared.dtype], pa.types.is_null)):
        declared.refuse(f"values of type {column.type}")
    if copy:
        column = column.take(pa.array(range(len(column)), pa.int64()))
    elif declared.dtype == "image" and column.num_chunks > 1:
        return column
    array = _combine(column)
    if declared.dtype == "language":
        _check_language(array, declared)
    elif declared.dtype == "string":
        _check_texts(array, declared)
    return array


def parse_tool_calls(value: Any) -> Any:
    """Return a checked language cell with its tool calls parsed from JSON."""
    for entry in value or []:
        calls = entry.get("tool_calls")
        if calls:
            entry["tool_calls"] = [json.loads(c) if isinstance(c, str) else c for c in calls]
    return value


def check_episode(numbers: Mapping[str, Numbers], episode: int, length: int, where: str) -> None:
    """Raise DataFileError unless rows are frames 0, 1, 2 ... of an episode, with finite times."""
    episodes, frames = numbers["episode_index"], numbers["frame_index"]
    if not (episodes == episode).all() or not np.array_equal(frames, np.arange(length)):
        raise DataFileError(
            f"{where}: the rows that meta/ gives to episode {episode} hold episodes "
            f"{np.unique(episodes).tolist()} and frames {frames.min()} to {frames.max()}; want "
            f"frames 0 to {length - 1} of it in order. The file and meta/ do not match."
        )
    times_s = numbers["timestamp"]
    if not np.isfinite(times_s).all():
        wrong = int(np.argmin(np.isfinite(times_s)))
        raise DataFileError(
            f"{where}: episode {episode}, frame {wrong}: timestamp is {times_s[wrong]}; want "
            "seconds since the episode began. Copy the file again."
        )


def check_times(
    timestamps: npt.NDArray[np.floating[Any]],
    frame_index: npt.NDArray[np.integer[Any]],
    fps: float,
    tolerance_s: float,
    where: str,
) -> None:
    """Raise DataFileError unless each frame's time is frame_index / fps. Pure.

    Video frames are found by these times, so a wrong one would show another frame. Tables store
    times in 32 bits, which are coarser than the usual tolerance from about 1000 s on. So a time may
    differ by the tolerance and one step of its 32 bits. `where` names the file and the episode.
    """
    wanted_s = frame_index / float(fps)
    steps_s = np.spacing(wanted_s.astype(np.float32)).astype(np.float64)
    near = np.abs(timestamps - wanted_s) <= tolerance_s + steps_s
    if near.all():
        return
    first = int(np.argmin(near))
    steps, hint = np.diff(timestamps.astype(np.float64)), ""
    if steps.size and steps.min() > 0 and steps.max() <= 1.01 * steps.min():
        found = 1 / steps.mean()
        hint = f" (the steps between them are those of {found:.6g} fps, info.json says {fps:g})"
    raise DataFileError(
        f"{where}: frame {frame_index[first]} has timestamp {timestamps[first]:.6g} s, want "
        f"frame_index / fps = {wanted_s[first]:.6g} s within {tolerance_s} s; "
        f"{np.count_nonzero(~near)} of {len(near)} frames are off{hint}. They would show other "
        "frames of the video. Correct fps in info.json if it is wrong, copy the file again if it "
        "is damaged, or raise tolerance_s if such times are meant."
    )


def _check_language(array: pa.Array, declared: DeclaredColumn) -> None:
    """Refuse cells that are not lists of records, and tool calls that cannot be parsed."""
    if pa.types.is_null(array.type):
        return
    import pyarrow.compute as pc  # on demand: workers start a tenth faster without it

    _check_texts(array, declared)
    frames, records = pc.list_parent_indices(array), array.flatten()
    if records.null_count:
        frame = frames[records.is_null().index(True)].as_py()
        declared.refuse("a null in place of a record", frame)
    if not len(records):
        return
    if not pa.types.is_struct(records.type):
        declared.refuse(f"values of type {array.type} in place of lists of records")
    if "tool_calls" in records.type.names:
        _check_tool_calls(records.field("tool_calls"), frames, declared)


def _check_tool_calls(calls: pa.Array, frames: pa.Array, declared: DeclaredColumn) -> None:
    """Refuse tool calls that `parse_tool_calls` cannot parse; `frames` has each row's frame."""
    if pa.types.is_null(calls.type):
        return
    if not _is_list(calls.type):
        declared.refuse(f"tool_calls of type {calls.type} in place of lists")
    import pyarrow.compute as pc

    owners, texts = pc.list_parent_indices(calls), calls.flatten()
    texts = texts.storage if isinstance(texts, pa.ExtensionArray) else texts
    if not any(test(texts.type) for test in _OBJECTS["string"]):
        return
    # Many frames share the same persistent records.
    for text in texts.unique().drop_null().to_pylist():
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            frame = frames[owners[texts.index(text).as_py()].as_py()].as_py()
            declared.refuse(f"a tool call that is no JSON, {text[:99]!r} ({error})", frame)


def _check_texts(array: pa.Array, declared: DeclaredColumn) -> None:
    """Refuse texts that are not UTF-8, which Arrow would otherwise notice only in use."""
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        declared.refuse(f"texts that cannot be read ({error})")


def _flatten(column: pa.ChunkedArray, declared: DeclaredColumn) -> pa.Array:
    """Return the numbers of all rows; refuse lists of another length than declared, and nulls."""
    array = _storage(_combine(column))
    # Some recorders store a shape of (1,) as lists of one number.
    is_plain = declared.shape == (1,) and not _is_list(array.type)
    per_row = 1
    for size in () if is_plain else declared.shape:
        if not _is_list(array.type):
            declared.refuse(f"values of type {column.type}")
        if pa.types.is_fixed_size_list(array.type) and array.type.list_size != size:
            declared.refuse(f"lists of {array.type.list_size} in place of {size}")
        lengths, items = _split_lists(array)
        wrong = np.flatnonzero(lengths != size)
        if wrong.size:
            length = lengths[wrong[0]]
            found = "a null" if length < 0 else f"a list of {length} in place of {size}"
            declared.refuse(found, int(wrong[0]) // per_row)
        array = _storage(items)
        per_row *= size
    if array.null_count:
        missing = array.is_null().to_numpy(zero_copy_only=False)
        declared.refuse("a null", int(np.argmax(missing)) // per_row)
    return array


def _split_lists(array: pa.Array) -> tuple[npt.NDArray[np.integer[Any]], pa.Array]:
    """Return the length of each list, -1 for a null, and the items of all lists.

    Arrow's own functions for this load `pyarrow.compute`.
    """
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        lengths = np.full(len(array), size)
        first, stop = array.offset * size, (array.offset + len(array)) * size
    else:
        offsets = _as_array(array.offsets)
        lengths = np.diff(offsets)
        first, stop = int(offsets[0]), int(offsets[-1])
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return lengths, array.values.slice(first, stop - first)


def _convert(flat: pa.Array, dtype: np.dtype[Any]) -> Numbers:
    """Return numbers of a declared dtype in ours; raises ArrowInvalid for what it cannot hold."""
    if dtype.kind == "f":
        if not pa.types.is_floating(flat.type):
            flat = flat.cast(pa.float64() if dtype.itemsize > 4 else pa.float32())
        # A float dtype rounds, up to infinity; LeRobot does so without a warning too.
        with np.errstate(over="ignore"):
            return _as_array(flat).astype(dtype, copy=False).astype(np.float32, copy=False)
    is_bool = dtype.kind == "b"
    if is_bool and pa.types.is_boolean(flat.type):
        return _unpack_bits(flat)
    for kind in (pa.int64(),) if is_bool else (pa.from_numpy_dtype(dtype), pa.int64()):
        flat = flat if flat.type == kind else flat.cast(kind)
    numbers = _as_array(flat)
    if is_bool and ((numbers != 0) & (numbers != 1)).any():
        raise pa.ArrowInvalid("a bool is 0 or 1")
    return numbers.astype(np.bool_) if is_bool else numbers


def _unpack_bits(flat: pa.Array) -> Numbers:
    """Return bools, of which Arrow has 8 in a byte."""
    if not len(flat):
        return np.zeros(0, np.bool_)
    first, stop = flat.offset, flat.offset + len(flat)
    bits = np.frombuffer(flat.buffers()[1], np.uint8)[first // 8 : -(-stop // 8)]
    return np.unpackbits(bits, bitorder="little")[first % 8 :][: len(flat)].view(np.bool_)


def _as_array(flat: pa.Array) -> Numbers:
    """Return numbers without nulls; `to_numpy` would load pandas where it is installed."""
    numbers: Numbers = np.from_dlpack(flat)
    return numbers


def _first_refused(flat: pa.Array, dtype: np.dtype[Any]) -> int:
    """Return the index of the first value that a conversion refuses."""

    def is_refused(stop: int) -> bool:
        try:
            _convert(flat.slice(0, stop), dtype)
        except pa.ArrowInvalid:
            return True
        return False

    return bisect.bisect_left(range(1, len(flat)), True, key=is_refused)


def _combine(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _storage(array: pa.Array) -> pa.Array:
    return array.storage if isinstance(array.type, pa.ExtensionType) else array


def _is_list(kind: pa.DataType) -> bool:
    return any(test(kind) for test in _LISTS)


def check_columns(
    file: OpenParquet, keys: Sequence[str], meta: LeRobotDatasetMetadata, where: str
) -> None:
    """Raise DataFileError unless a file has each column once, and no undeclared language."""
    names = file.schema_arrow.names
    present = set(names)
    missing = [key for key in keys if key not in present]
    if missing:
        raise DataFileError(
            f"{where}: the columns {', '.join(missing)} that info.json declares are missing; found "
            f"{', '.join(sorted(present))}. The file is from another version of the dataset."
        )
    doubled = [key for key in keys if names.count(key) > 1]
    if doubled:
        raise DataFileError(
            f"{where}: there are several columns {', '.join(doubled)}; want one of each name. "
            "Write the file again without the others."
        )
    undeclared = [key for key in LANGUAGE_KEYS if key in present and key not in meta.features]
    if undeclared:
        raise DataFileError(
            f"{where}: the language columns {', '.join(undeclared)} are in the file but not "
            "declared in info.json. Declare them there with dtype 'language' and shape [1]."
        )
