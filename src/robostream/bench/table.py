# SPDX-License-Identifier: Apache-2.0
"""Tables for people: on a terminal, and in documents."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic


def format_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return an aligned table; numbers are right-aligned, text left-aligned. Pure."""
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
    """Return a table for a document. Pure."""
    lines = [header, ["---"] * len(header), *([format_cell(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def with_block(text: str, name: str, block: str) -> str:
    """Return a document with another block between its marks of that name. Pure."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    found = re.search(f"{begin}.*{end}", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return text[: found.start()] + f"{begin}\n{block}\n{end}" + text[found.end() :]


def refresh_block(document: Path, name: str, block: str) -> None:
    """Write another block between the marks of that name in a document."""
    write_bytes_atomic(document, with_block(document.read_text(), name, block).encode())


def format_cell(value: object) -> str:
    """Return a value as a table shows it. Pure."""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
