# SPDX-License-Identifier: Apache-2.0
"""Tables as text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from robostream.bench import format_table

HEADER = ["name", "frames", "task"]
ROWS = st.lists(
    st.tuples(st.text("abc", max_size=60), st.integers(0, 10**6), st.text("xyz", max_size=90)),
    min_size=1,
    max_size=5,
)


@given(rows=ROWS, columns=st.integers(40, 200))
def test_a_table_fits_the_terminal(rows: list[tuple[str, int, str]], columns: int) -> None:
    """Long texts wrap, so nothing of them is lost; numbers stay whole."""
    lines = format_table(HEADER, rows, columns=columns).splitlines()
    name, number, _ = map(len, lines[1].split("  "))
    cells: list[list[str]] = []
    for line in lines[2:]:
        parts = line[:name], line[name + 2 : name + 2 + number], line[name + 4 + number :]
        if parts[1].strip():
            cells.append(["", "", ""])
        cells[-1] = [cell + part.strip() for cell, part in zip(cells[-1], parts, strict=True)]

    assert max(map(len, lines)) <= columns
    assert cells == [[row[0], f"{row[1]:,}", row[2]] for row in rows]


def test_names_wrap_between_their_parts() -> None:
    """So that cameras can be told apart on a narrow terminal; other words stay whole."""
    rows = [("observation.images.front", "28.8 MiB in a pool"), ("action", "0")]

    assert format_table(["key", "memory"], rows, columns=24).splitlines() == [
        "key          memory",
        "-----------  -----------",
        "observation  28.8 MiB in",
        ".images      a pool",
        ".front",
        "action       0",
    ]


@given(rows=ROWS)
def test_without_a_terminal_nothing_is_cut(rows: list[tuple[str, int, str]]) -> None:
    """Scripts and files get whole texts."""
    table = format_table(HEADER, rows)

    assert all(row[0] in table and row[2] in table for row in rows)
