# SPDX-License-Identifier: Apache-2.0
"""`bench report`: results of `bench stream` as a table, summary.csv and report.html.

Runs with equal settings become one row, with medians over rounds and nodes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from robostream.bench.page import page_html
from robostream.bench.results import Figures, csv_text, read_figures
from robostream.bench.stream_settings import OUT_DIR
from robostream.bench.summary import group_rows, summary_rows
from robostream.bench.table import format_table
from robostream.errors import MissingExtraError, RobostreamError
from robostream.storage import write_bytes_atomic

# A field of every result of `bench stream`; other JSON files may lie beside them.
_MARK = "frames_per_s_node"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=OUT_DIR,
        help="the folder of the results, which may lie in subfolders (%(default)s)",
    )
    parser.add_argument("--title", default="Streaming benchmark", help="the title of the page")


def run(args: argparse.Namespace) -> int:
    """Print the table, write summary.csv and report.html; return 1 if a run failed."""
    return write_report(args.folder, title=args.title)


def write_report(folder: Path, *, title: str) -> int:
    """Print the table, write summary.csv and report.html; return 1 if a run failed, else 0.

    Without matplotlib there is no page, and a message says so.
    """
    runs, failures = collect(folder)
    for name, reason in failures.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if not runs:
        raise RobostreamError(f"{folder}: want results of `bench stream`, found none")
    rows = group_rows(runs)
    found = summary_rows(rows)
    cells = [["-" if value is None else value for value in row.values()] for row in found]
    print(format_table(list(found[0]), cells))
    _write(folder / "summary.csv", csv_text(found))
    try:
        _write(folder / "report.html", page_html(rows, failures, title=title))
    except MissingExtraError as error:
        print(f"report.html is not written: {error}", file=sys.stderr)
    return 1 if failures else 0


def _write(path: Path, text: str) -> None:
    write_bytes_atomic(path, text.encode())
    print(f"written to {path}")


def collect(folder: Path) -> tuple[list[Figures], dict[str, str]]:
    """Return the figures of all runs below a folder, and the reasons of failures by file.

    A file NAME.failed means that a run failed, and its first line says why; a job that runs the
    benchmark may write one. An unreadable JSON file is a failure, too.
    """
    if not folder.is_dir():
        raise RobostreamError(
            f"{folder}: want a folder of results, found none. Run `robostream bench stream` first, "
            "or give its --out_dir."
        )
    runs, failures = [], {}
    for path in sorted(folder.rglob("*.json")):
        try:
            figures = read_figures(path)
        except RobostreamError as error:
            failures[str(path.relative_to(folder))] = str(error)
            continue
        if _MARK in figures:
            runs.append(figures)
    for path in sorted(folder.rglob("*.failed")):
        reason = path.read_text(errors="replace").strip().splitlines()
        failures[str(path.relative_to(folder))] = reason[0] if reason else "no reason given"
    return runs, failures
