# SPDX-License-Identifier: Apache-2.0
"""Figures: on disk, as medians, as tables, and in the documents of a checkout that show them."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import count, zip_longest
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from robostream.errors import MissingExtraError, RobostreamError
from robostream.storage import write_bytes_atomic

Figures = dict[str, Any]
Measured = tuple[Figures, str]  # the figures of a benchmark, and its tables for a terminal
# The name of a field, or a function of a row.
Column = str | Callable[[Any], object]
RESULTS, DOCS = Path("benchmarks/results"), Path("docs/benchmarks.md")
_PACKAGES = ("robostream", "torch", "numpy", "pyarrow", "av", "huggingface_hub", "fsspec")
# Columns of text stay at least this wide.
_LEAST_COLUMN = 8


def show_progress(text: str) -> None:
    """Print a line on standard error; a benchmark prints its tables after it wrote its figures."""
    with suppress(BrokenPipeError):  # of `... 2>&1 | head`
        print(text, file=sys.stderr, flush=True)


def write_json(path: Path, figures: Any) -> None:
    """Write figures as indented JSON, atomically."""
    write_bytes_atomic(path, (json.dumps(figures, indent=2) + "\n").encode())


def ensure_writable(folder: Path) -> None:
    """Create a folder; raise if files cannot be written to it. Long measurements begin with it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise RobostreamError(
            f"results cannot be written to {folder}: {error.strerror}. Choose another folder."
        ) from error


def save_run(folder: Path, name: str, figures: Figures) -> Path:
    """Write the figures of one run as JSON and CSV; return the path of the JSON.

    A time stamp, and a number if needed, keep runs from overwriting each other, even runs that end
    in the same second on different nodes. Nested values are JSON text in the CSV.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{name}_{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}"
    for number in count():
        path = folder / f"{stem}{f'-{number}' if number else ''}.csv"
        with suppress(FileExistsError):
            path.touch(exist_ok=False)
            break
    nested = {n: json.dumps(v) for n, v in figures.items() if isinstance(v, dict | list)}
    write_json(path.with_suffix(".json"), figures)
    write_bytes_atomic(path, csv_text([figures | nested]).encode())
    return path.with_suffix(".json")


def csv_text(rows: Sequence[Figures]) -> str:
    """Return rows as CSV, with the columns of the first row. Pure."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def read_figures(path: Path) -> Figures:
    """Return the figures of a JSON file; raise an error that names the file."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RobostreamError(f"{path}: want the JSON of a benchmark, found {error}") from error
    if not isinstance(found, dict):
        raise RobostreamError(f"{path}: want a JSON object, found {type(found).__name__}")
    return found


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of every number that is in all rounds. Pure."""

    def is_number(value: object) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool)

    return {
        name: median(figures[name] for figures in rounds)
        for name in rounds[0]
        if all(is_number(figures.get(name)) for figures in rounds)
    }


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Return the ratio within each round. Pure."""
    return [a / b for a, b in zip(ours, theirs, strict=True)]


def machine() -> dict[str, object]:
    """Return the machine, the package versions and the commit that figures were measured with."""
    return {
        "cpus": os.cpu_count(),
        "cpu": _cpu_model(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "versions": {package: package_version(package) or "not installed" for package in _PACKAGES},
        "git_commit": git_commit(),
    }


def describe_cores(figures: Figures) -> str:
    """Return the cores of the machine that figures were measured on, as text. Pure."""
    return f"{figures['machine']['cpus']} cores of {figures['machine']['cpu']}"


def git_commit() -> str | None:
    """Return the commit of the sources, with "-dirty" if files differ; None outside git.

    An installed robostream may lie inside another repository, whose commit means nothing.
    """
    source = Path(__file__).parents[3]
    if not (source / ".git").exists():
        return None
    command = ["git", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty"]
    with suppress(OSError, subprocess.SubprocessError):
        options: Any = {"cwd": source, "stderr": subprocess.DEVNULL, "text": True, "timeout": 10}
        return str(subprocess.check_output(command, **options)).strip()
    return None


def package_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    file = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: *(.*)", file.read_text() if file.exists() else "", re.M)
    return found[1].strip() if found else platform.processor() or "unknown"


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
        wrapped = [zip_longest(*map(_wrap, row, widths), fillvalue="") for row in lines]
        styles = [f"{sign}{width}" for sign, width in zip(signs, widths, strict=True)]
        texts = ("  ".join(map(format, line, styles)) for row in wrapped for line in row)
        return "\n".join(text.rstrip() for text in texts)

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


def require_matplotlib() -> None:
    """Raise MissingExtraError unless matplotlib is installed."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing charts") from error


@dataclass(frozen=True, slots=True)
class Publication:
    """The figures of one benchmark in a checkout, and the documents that show them."""

    results: str  # a file in `benchmarks/results`; may name figures in braces
    # By document and the name of its marks there, the text between them, made from a checkout;
    # None leaves it as it is.
    documents: Mapping[Path, Mapping[str, Callable[[Path], str | None]]]
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
                if (block := make(repo)) is not None:
                    texts[document] = replace_block(texts[document], mark, block)
        return texts


def row_key(row: Figures, fields: Sequence[str]) -> str:
    """Return the identity of a row, the same before and after JSON. Pure."""
    return json.dumps([row[name] for name in fields])


def replace_block(text: str, mark: str, block: str) -> str:
    """Return a document with another block between its marks. Pure."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    found = re.search(f"(?<={begin}\n).*?(?={end})", text, re.DOTALL)
    if found is None:
        raise RobostreamError(f"want the lines {begin} and {end} in the document, found none")
    return f"{text[: found.start()]}{block}\n{text[found.end() :]}"
