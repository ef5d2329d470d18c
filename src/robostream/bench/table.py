# SPDX-License-Identifier: Apache-2.0
"""Tables as text and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

# The name of a field, or a function of a row.
Column = str | Callable[[Any], object]


def select_cells(rows: Sequence[Any], columns: Mapping[str, Column]) -> list[list[Any]]:
    """Return the cells of rows, by columns. Pure."""
    return [
        [column(row) if callable(column) else row[column] for column in columns.values()]
        for row in rows
    ]


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table with numbers aligned right and text aligned left. Pure."""
    cells = [[format_cell(value) for value in row] for row in rows]
    widths = [max(len(line[i]) for line in [list(header), *cells]) for i in range(len(header))]
    numeric = [
        all(not isinstance(row[i], str) for row in rows) and bool(rows) for i in range(len(header))
    ]

    def line(values: Sequence[str]) -> str:
        parts = (
            value.rjust(width) if right else value.ljust(width)
            for value, width, right in zip(values, widths, numeric, strict=True)
        )
        return "  ".join(parts).rstrip()

    return "\n".join([line(header), line(["-" * width for width in widths]), *map(line, cells)])


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table. Pure."""
    lines = [header, ["---"] * len(header), *([format_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_cell(value: object) -> str:
    """Return the text of a table cell. Pure."""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
