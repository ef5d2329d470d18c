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
    """Long texts are cut and marked; numbers are never cut."""
    lines = format_table(HEADER, rows, columns=columns).splitlines()

    assert max(map(len, lines)) <= columns
    assert all(f"{row[1]:,}" in line for row, line in zip(rows, lines[2:], strict=True))


@given(rows=ROWS)
def test_without_a_terminal_nothing_is_cut(rows: list[tuple[str, int, str]]) -> None:
    """Scripts and files get whole texts."""
    table = format_table(HEADER, rows)

    assert all(row[0] in table and row[2] in table for row in rows)
