# SPDX-License-Identifier: Apache-2.0
"""Tables as text and as Markdown, and the documents of a checkout that show them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robostream.bench.results import Figures, read_figures, write_json
from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic

# The name of a field, or a function of a row.
Column = str | Callable[[Any], object]
Table = tuple[Sequence[str], Sequence[Sequence[object]]]
# Columns of text stay at least this wide.
_LEAST_COLUMN = 8
RESULTS = Path("benchmarks/results")


def table_of(rows: Sequence[Any], columns: Mapping[str, Column] | None = None) -> Table:
    """Return header and cells: the columns by title, or all fields of the rows. Pure."""
    columns = columns or {name: name for name in rows[0]}
    cells = [
        [column(row) if callable(column) else row[column] for column in columns.values()]
        for row in rows
    ]
    return list(columns), cells


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, columns: int | None = None
) -> str:
    """Return a table with numbers aligned right and text aligned left. Pure.

    With `columns`, the width of a terminal, the longest texts are cut until the table fits.
    """
    lines = [list(header), *([format_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    cells = list(zip(*rows, strict=True)) or [("",)] * len(header)
    signs = ["<" if any(isinstance(cell, str) for cell in column) else ">" for column in cells]
    if columns is not None:
        widths = _narrowed(widths, signs, columns - 2 * (len(widths) - 1))
        lines = [list(map(_cut, line, widths)) for line in lines]
    lines.insert(1, ["-" * width for width in widths])
    styles = [f"{sign}{width}" for sign, width in zip(signs, widths, strict=True)]

    def line_text(line: Sequence[str]) -> str:
        return "  ".join(map(format, line, styles)).rstrip()

    return "\n".join(map(line_text, lines))


def _narrowed(widths: Sequence[int], signs: Sequence[str], room: int) -> list[int]:
    """Return widths that add up to `room`, if narrower columns of text allow it. Pure."""
    found = list(widths)
    while sum(found) > room:
        widest = max(range(len(found)), key=lambda i: found[i] if signs[i] == "<" else 0)
        if signs[widest] != "<" or found[widest] <= _LEAST_COLUMN:
            break
        found[widest] -= 1
    return found


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


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


@dataclass(frozen=True, slots=True)
class Publication:
    """The figures of one benchmark in a checkout, and the document that shows them.

    Attributes:
        results: The file in `benchmarks/results`; may name figures in braces.
        document: A Markdown file of the checkout.
        blocks: By the name of its marks, a function that makes the text between them from the
            checkout's JSON files.
        charts: By path, a function that draws a chart from the checkout's JSON files.
        keys: By list of rows, the fields that identify a row. New rows replace equal ones, and
            others stay. Without keys, new figures replace all.
    """

    results: str
    document: Path
    blocks: Mapping[str, Callable[[Path], str]]
    charts: Mapping[Path, Callable[[Path], bytes]] = field(default_factory=dict)
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def publish(self, repo: Path, figures: Figures) -> None:
        """Write figures to a checkout and refresh the document that shows them."""
        path = repo / RESULTS / self.results.format(**figures)
        if self.keys and path.exists():
            figures = self._merge(read_figures(path), figures)
        write_json(path, figures)
        write_bytes_atomic(repo / self.document, self.refreshed(repo).encode())
        for chart, draw in self.charts.items():
            write_bytes_atomic(repo / chart, draw(repo))
        written = [*(repo / each for each in (self.document, *self.charts)), path]
        print(f"refreshed {', '.join(map(str, written))}")

    def refreshed(self, repo: Path) -> str:
        """Return the document with every block made anew from the checkout's JSON files."""
        text = (repo / self.document).read_text()
        for mark, make in self.blocks.items():
            text = replace_block(text, mark, make(repo))
        return text

    def _merge(self, known: Figures, new: Figures) -> Figures:
        merged = known | new
        for name, fields in self.keys.items():
            rows = [*known.get(name, ()), *new.get(name, ())]
            merged[name] = list({row_key(row, fields): row for row in rows}.values())
        return merged


def row_key(row: Figures, fields: Sequence[str]) -> str:
    """Return the identity of a row, the same before and after JSON. Pure."""
    return json.dumps([row[name] for name in fields])


def replace_block(text: str, mark: str, block: str) -> str:
    """Return a document with another block between its marks. Pure."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    found = re.search(f"{begin}.*{end}", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return text[: found.start()] + f"{begin}\n{block}\n{end}" + text[found.end() :]
