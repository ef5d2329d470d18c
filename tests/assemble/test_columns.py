# SPDX-License-Identifier: Apache-2.0
"""Columns that are not what info.json declares: converted as LeRobot would, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble.columns import DeclaredColumn, numeric_column, object_column
from robostream.errors import DataFileError
from robostream.write.frames import language_fields
from robostream.write.join import language_array

WHERE = "file.parquet: episode 4"


def read(cells: Any, dtype: str, *shape: int) -> Any:
    """Return a column of these cells, read as info.json declares it."""
    stored = cells if isinstance(cells, pa.Array) else pa.array(cells)
    case = DeclaredColumn("action", dtype, shape or (1,), WHERE)
    return numeric_column(pa.chunked_array([stored]), case)


def refused(frame: int, found: str) -> Any:
    """Expect an error that names file, episode, frame, column, what was found, and the cure."""
    message = rf"^{WHERE}, frame {frame}: column 'action' holds {found}.*info\.json declares.*Copy"
    return pytest.raises(DataFileError, match=message)


@given(
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=8),
    declared=st.integers(2, 4),
    large=st.booleans(),
)
def test_every_row_has_the_declared_length(lengths: list[int], declared: int, large: bool) -> None:
    """Rows whose lengths only add up to the right number do not pass."""
    kind = pa.large_list(pa.float32()) if large else pa.list_(pa.float32())
    cells = pa.array([[0.0] * n for n in lengths], kind)
    wrong = [frame for frame, n in enumerate(lengths) if n != declared]
    if not wrong:
        assert read(cells, "float32", declared).shape == (len(lengths), declared)
        return

    with refused(wrong[0], f"a list of {lengths[wrong[0]]} in place of {declared}"):
        read(cells, "float32", declared)


@pytest.mark.parametrize(
    ("cells", "frame", "found"),
    [
        ([[[1, 2], [3]], [[4, 5], [6, 7, 8]]], 0, "a list of 1 in place of 2"),
        ([[[1, 2], [3, 4]], [[5, 6]], [[7, 8]] * 3], 1, "a list of 1 in place of 2"),
        ([[[1, 2], [3, 4]], [[5, 6], None]], 1, "a null"),
        ([[[1, 2], [3, None]]], 0, "a null"),
        ([None, [[1, 2]] * 4], 0, "a null"),
    ],
)
def test_inner_lists_are_checked_too(cells: Any, frame: int, found: str) -> None:
    """At every level of a (2, 2) column each list has two entries, none of them null."""
    with refused(frame, found):
        read(cells, "int64", 2, 2)


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.list_(pa.int64(), 2)])
def test_a_null_beside_a_list_of_double_length(kind: pa.DataType) -> None:
    """A missing row is not made up for by its neighbour."""
    neighbour = [1, 2] if pa.types.is_fixed_size_list(kind) else [1, 2, 3, 4]

    with refused(1, "a null"):
        read(pa.array([[1, 2], None, neighbour], kind), "int64", 2)


@pytest.mark.parametrize(
    ("cells", "dtype", "want"),
    [
        ([1.0, -2.0, 3.0], "int64", np.int64),
        ([1, 0, 7], "float32", np.float32),
        (pa.array([1, 2, 3], pa.int8()), "int64", np.int64),
        (pa.array([1, 2, 2**63 - 1], pa.uint64()), "uint64", np.int64),
        ([True, False, True], "int64", np.int64),
        ([True, False, True], "float16", np.float32),
        ([1, 0, 1], "bool", np.bool_),
        ([1.0, 0.0, 1.0], "bool", np.bool_),
        (np.array([1.5, 2, 3], np.float16), "float32", np.float32),
        (np.array([1, 2, 3], np.float16), "int32", np.int64),
        ([[1.5], [2.0], [3.0]], "float64", np.float32),
    ],
)
def test_values_the_declared_dtype_can_hold_are_taken(
    cells: Any, dtype: str, want: type[np.generic]
) -> None:
    """The declared dtype decides what comes out, whichever one the file stores."""
    values = read(cells, dtype)

    assert values.dtype == want
    assert values.tolist() == np.ravel(pa.array(cells).to_pylist()).tolist()


def test_floats_are_rounded_to_the_declared_ones() -> None:
    """A column of doubles under float16 has the values of float16, as in LeRobot."""
    stored = pa.array([0.1, 1e300])

    assert read(stored, "float16").tolist() == [np.float16(0.1), np.inf]
    assert read(stored, "float64").tolist() == [np.float32(0.1), np.inf]


@pytest.mark.parametrize(
    ("cells", "dtype", "found"),
    [
        ([1.0, 2.5, 3.5], "int64", r"2\.5 \(Float value"),
        ([1.0, float("nan")], "int64", "nan"),
        ([0.0, 1e30], "int64", r"1e\+30"),
        (pa.array([1, 2**63], pa.uint64()), "uint64", "9223372036854775808"),
        (pa.array([1, 2**64 - 1], pa.uint64()), "int64", "18446744073709551615"),
        ([1, 300], "int8", "300"),
        ([1, -1], "uint8", "-1"),
        ([1, 2**24 + 1], "float32", "16777217"),
        ([1, 2], "bool", r"2 \(a bool is 0 or 1"),
        ([1.0, 0.5], "bool", r"0\.5"),
        ([1, None], "int64", "a null"),
    ],
)
def test_a_value_the_declared_dtype_cannot_hold(cells: Any, dtype: str, found: str) -> None:
    """The first one is named with its frame; nothing is cut or wrapped."""
    with refused(1, found):
        read(cells, dtype)


def test_the_frame_of_a_value_deep_inside_is_named() -> None:
    """Frames are counted in rows, not in values."""
    cells = np.zeros((9, 2, 3))
    cells[5, 1, 0] = 0.25

    with refused(5, r"0\.25"):
        read(cells.tolist(), "int64", 2, 3)


@pytest.mark.parametrize(
    ("cells", "dtype", "shape"),
    [
        (["1", "2"], "int64", ()),
        ([["1.5"], ["2"]], "float32", (1,)),
        ([b"1", b"2"], "float32", ()),
        ([1, 2], "int64", (2,)),
        ([[1, 2, 3, 4]], "int64", (2, 2)),
        ([[[1, 2]]], "int64", (2,)),
        ([[[1]]], "int64", (1,)),
        ([{"a": 1}], "int64", ()),
    ],
)
def test_a_column_of_another_type(cells: Any, dtype: str, shape: tuple[int, ...]) -> None:
    """Texts are no numbers, and lists no other lists, even where one could make them so."""
    with pytest.raises(DataFileError, match=rf"{WHERE}.*'action' holds .*declares {dtype}"):
        read(cells, dtype, *shape)


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        ([1.5, 2.5], "string"),
        (["a.png"], "image"),
        ([{"path": "a.png"}], "image"),
        (["hello"], "language"),
    ],
)
def test_numbers_are_no_texts_and_paths_no_images(cells: Any, dtype: str) -> None:
    """What should be a text, an image or a list of records is one."""
    case = DeclaredColumn("note", dtype, (1,), WHERE)

    with pytest.raises(DataFileError, match=f"'note' holds values of type .*declares {dtype}"):
        object_column(pa.chunked_array([cells]), case, copy=True)


def records(*calls: Any) -> list[list[dict[str, Any]]]:
    """Return language cells of one record each, with these tool calls, after an empty one."""
    return [[], *([{"role": "user", "tool_calls": call}] for call in calls)]


@pytest.mark.parametrize(
    ("cells", "found"),
    [
        (records(["{}"], ["{}", '{"name": ']), r", frame 2: .* no JSON, '{\"name\": ' \(Expecting"),
        (records(["{}"], ["[" * 100_000]), ", frame 2: .* a tool call that is no JSON"),
        (records("{}"), ": .* tool_calls of type string in place of lists"),
        (records(1.5), ": .* tool_calls of type double"),
        ([[{"role": "user"}], [{"role": "user"}, None]], ", frame 1: .* a null in place of a"),
        ([[], [None]], ", frame 1: .* a null in place of a record"),
        ([["hello"]], r": .* list<.*string> in place of lists of records"),
        ([[0.5, 1.5]], r": .* list<.*double> in place of lists of records"),
        ([0.5, 1.5], ": .* values of type double"),
        (pa.array([["\xff".encode("latin-1")]]).view(pa.list_(pa.string())), ": .* UTF8"),
    ],
)
def test_language_that_is_no_list_of_records(cells: Any, found: str) -> None:
    """Whatever could not be parsed when a sample is made is refused when its episode is read."""
    case = DeclaredColumn("note", "language", (1,), WHERE)
    stored = cells if isinstance(cells, pa.Array) else pa.array(cells)

    with pytest.raises(DataFileError, match=rf"^{WHERE}{found}.*declares language"):
        object_column(pa.chunked_array([stored]), case, copy=True)


@pytest.mark.parametrize(
    "stored",
    [
        pa.array(records(None, ["{}", None], [])),
        pa.array(records([{"name": "say"}])),
        pa.array([[], None, [{"role": "user"}]]),
        pa.array([[], []]),
        pa.nulls(2),
        language_array(
            "language_persistent",
            [[], [dict.fromkeys(language_fields("language_persistent")) | {"tool_calls": ["3"]}]],
        ),
    ],
)
@pytest.mark.parametrize("start", [0, 1])
def test_language_that_is_one_stays_as_it_is(stored: pa.Array, start: int) -> None:
    """Frames without records, records without calls, calls of any kind; slices of a table too."""
    case = DeclaredColumn("note", "language", (1,), WHERE)
    part = stored.slice(start)

    assert object_column(pa.chunked_array([part]), case, copy=False).equals(part)


def test_missing_texts_stay_missing() -> None:
    """A column of nulls is what a recorder writes where nothing was said."""
    case = DeclaredColumn("note", "string", (1,), WHERE)
    nulls = object_column(pa.chunked_array([pa.nulls(2)]), case, copy=True)

    assert nulls.to_pylist() == [None, None]


def test_texts_that_are_no_utf_8_are_refused() -> None:
    """When their episode is read, and not when a sample is made of them."""
    case = DeclaredColumn("note", "string", (1,), WHERE)
    stored = pa.array([b"a", b"\xff"]).view(pa.string())

    with pytest.raises(DataFileError, match=rf"^{WHERE}: .* texts that cannot be read .*UTF8"):
        object_column(pa.chunked_array([stored]), case, copy=True)
