# SPDX-License-Identifier: Apache-2.0
"""Tables as text and as Markdown, and the documents of a checkout that show them."""

from __future__ import annotations

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
RESULTS = Path("benchmarks/results")


def table_of(rows: Sequence[Any], columns: Mapping[str, Column]) -> str:
    """Return the columns of rows as text. Pure."""
    return format_table(list(columns), _select(rows, columns))


def markdown_of(rows: Sequence[Any], columns: Mapping[str, Column]) -> str:
    """Return the columns of rows as Markdown. Pure."""
    return markdown_table(list(columns), _select(rows, columns))


def _select(rows: Sequence[Any], columns: Mapping[str, Column]) -> list[list[Any]]:
    return [
        [column(row) if callable(column) else row[column] for column in columns.values()]
        for row in rows
    ]


def format_rows(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows as text; the keys of the first are the header. Pure."""
    return format_table(list(rows[0]), [list(row.values()) for row in rows])


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


@dataclass(frozen=True, slots=True)
class Publication:
    """The document that shows the figures of one benchmark.

    Attributes:
        document: A Markdown file of the checkout.
        blocks: By the name of its marks, a function that makes the text between them from the
            checkout's JSON files.
        charts: By path, a function that draws a chart from the checkout's JSON files.
    """

    document: Path
    blocks: Mapping[str, Callable[[Path], str]]
    charts: Mapping[Path, Callable[[Path], bytes]] = field(default_factory=dict)


def publish(
    repo: Path,
    name: str,
    figures: Figures,
    publication: Publication,
    *,
    merge: Callable[[Figures, Figures], Figures] | None = None,
) -> None:
    """Write figures to a checkout and refresh the document that shows them.

    Args:
        repo: The checkout.
        name: The file in `benchmarks/results`.
        figures: The new figures.
        publication: The document.
        merge: Combines the figures already there with the new ones; None replaces them.
    """
    path = repo / RESULTS / name
    if merge is not None and path.exists():
        figures = merge(read_figures(path), figures)
    write_json(path, figures)
    document = repo / publication.document
    write_bytes_atomic(document, refreshed(repo, publication).encode())
    for chart, draw in publication.charts.items():
        write_bytes_atomic(repo / chart, draw(repo))
    written = [document, *(repo / chart for chart in publication.charts), path]
    print(f"refreshed {', '.join(map(str, written))}")


def refreshed(repo: Path, publication: Publication) -> str:
    """Return the document with every block made anew from the checkout's JSON files."""
    text = (repo / publication.document).read_text()
    for mark, make in publication.blocks.items():
        text = replace_block(text, mark, make(repo))
    return text


def replace_block(text: str, mark: str, block: str) -> str:
    """Return a document with another block between its marks. Pure."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    found = re.search(f"{begin}.*{end}", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return text[: found.start()] + f"{begin}\n{block}\n{end}" + text[found.end() :]
