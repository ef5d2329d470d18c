# SPDX-License-Identifier: Apache-2.0
"""Tables as text and as Markdown, and the document of a checkout that shows them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from robostream.bench.charts import require_matplotlib
from robostream.bench.results import Figures, read_figures, write_json
from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic

# The name of a field, or a function of a row.
Column = str | Callable[[Any], object]
# Columns of text stay at least this wide.
_LEAST_COLUMN = 8
RESULTS, DOCS = Path("benchmarks/results"), Path("docs/benchmarks.md")


class Table(NamedTuple):
    """A table: numbers are aligned right and text left."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]

    @classmethod
    def of(cls, rows: Sequence[Any], columns: Mapping[str, Column] | None = None) -> Table:
        """Return the columns of some rows, by title, or all their fields. Pure."""
        columns = columns or {name: name for name in rows[0]}
        cells = [
            [column(row) if callable(column) else row[column] for column in columns.values()]
            for row in rows
        ]
        return cls(list(columns), cells)

    def text(self, columns: int | None = None) -> str:
        """Return the table for a terminal. Pure.

        With `columns`, the width of the terminal, the longest texts wrap until the table fits.
        """
        lines = [list(self.header), *(list(map(format_cell, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = list(zip(*self.rows, strict=True)) or [("",)] * len(self.header)
        signs = ["<" if any(isinstance(cell, str) for cell in column) else ">" for column in cells]
        if columns is not None:
            widths = _narrowed(widths, signs, columns - 2 * (len(widths) - 1))
        lines.insert(1, ["-" * width for width in widths])
        lines = [line for row in lines for line in _wrap_row(row, widths)]
        styles = [f"{sign}{width}" for sign, width in zip(signs, widths, strict=True)]
        return "\n".join("  ".join(map(format, line, styles)).rstrip() for line in lines)

    def markdown(self) -> str:
        """Return the table in Markdown. Pure."""
        rows = [list(map(format_cell, row)) for row in self.rows]
        lines = [self.header, ["---"] * len(self.header), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[object]], *, columns: int | None = None
) -> str:
    """Return a table as text, no wider than `columns` if that is possible. Pure."""
    return Table(header, rows).text(columns)


def _narrowed(widths: Sequence[int], signs: Sequence[str], room: int) -> list[int]:
    """Return widths that add up to `room`, if narrower columns of text allow it. Pure."""
    found = list(widths)
    while sum(found) > room:
        widest = max(range(len(found)), key=lambda i: found[i] if signs[i] == "<" else 0)
        if signs[widest] != "<" or found[widest] <= _LEAST_COLUMN:
            break
        found[widest] -= 1
    return found


def _wrap_row(row: Sequence[str], widths: Sequence[int]) -> list[list[str]]:
    """Return the lines of a row whose cells wrap at these widths. Pure."""
    return list(map(list, zip_longest(*map(_wrap, row, widths), fillvalue="")))


def _wrap(text: str, width: int) -> list[str]:
    """Return lines of at most `width`, broken between words, or in a long word at . / _. Pure."""
    lines = [""]
    for word in re.split(r"(?<=\s)", text):
        is_long = len(word.rstrip()) > width
        for part in re.split(r"(?=[./_]\w)", word) if is_long else [word]:
            if len(f"{lines[-1]}{part}".rstrip()) <= width:
                lines[-1] += part
            else:
                lines += [part[start : start + width] for start in range(0, len(part), width)]
    return [line.rstrip() for line in lines if line] or [""]


def format_cell(value: object) -> str:
    """Return the text of a table cell. Pure."""
    if isinstance(value, float):
        return f"{value:,.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


@dataclass(frozen=True, slots=True)
class Publication:
    """The figures of one benchmark in a checkout, and the documents that show them."""

    results: str  # a file in `benchmarks/results`; may name figures in braces
    # By document and the name of its marks there, the text between them, made from a checkout.
    documents: Mapping[Path, Mapping[str, Callable[[Path], str]]]
    charts: Mapping[Path, Callable[[Path], bytes]] = field(default_factory=dict)
    # By list of rows, the fields that identify a row: new rows replace equal ones, others stay.
    # Without keys, new figures replace all.
    keys: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def prepare(self) -> None:
        """Raise now, not after a long measurement, if a chart could not be drawn."""
        if self.charts:
            require_matplotlib()

    def read(self, repo: Path) -> Figures:
        """Return the published figures."""
        return read_figures(repo / RESULTS / self.results)

    def publish(self, repo: Path, figures: Figures) -> None:
        """Write figures to a checkout and refresh the documents that show them."""
        path = repo / RESULTS / self.results.format(**figures)
        if self.keys and path.exists():
            known = read_figures(path)
            merged = known | figures
            for name, fields in self.keys.items():
                rows = [*known.get(name, ()), *figures.get(name, ())]
                merged[name] = list({row_key(row, fields): row for row in rows}.values())
            figures = merged
        write_json(path, figures)
        texts = {document: text.encode() for document, text in self.refreshed(repo).items()}
        texts |= {chart: draw(repo) for chart, draw in self.charts.items()}
        for document, text in texts.items():
            write_bytes_atomic(repo / document, text)
        print(f"refreshed {', '.join(str(repo / each) for each in texts)}, {path}")

    def refreshed(self, repo: Path) -> dict[Path, str]:
        """Return the documents with every block made anew from the checkout's JSON files."""
        texts = {document: (repo / document).read_text() for document in self.documents}
        for document, blocks in self.documents.items():
            for mark, make in blocks.items():
                texts[document] = replace_block(texts[document], mark, make(repo))
        return texts


def row_key(row: Figures, fields: Sequence[str]) -> str:
    """Return the identity of a row, the same before and after JSON. Pure."""
    return json.dumps([row[name] for name in fields])


def replace_block(text: str, mark: str, block: str) -> str:
    """Return a document with another block between its marks. Pure."""
    found = _search_block(text, mark)
    return f"{text[: found.start(1)]}{block}\n{text[found.start(2) :]}"


def find_block(text: str, mark: str) -> str:
    """Return the block between the marks of a document. Pure."""
    return _search_block(text, mark)[1].rstrip("\n")


def _search_block(text: str, mark: str) -> re.Match[str]:
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    found = re.search(f"{begin}\n(.*?)({end})", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return found
