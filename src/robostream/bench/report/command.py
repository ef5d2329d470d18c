# SPDX-License-Identifier: Apache-2.0
"""`robostream bench report`, also `benchmarks/streaming/summarize_results.py`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from robostream.bench.report.collect import collect
from robostream.bench.report.page import page_html
from robostream.bench.report.rows import group_rows
from robostream.bench.report.summary import summary_csv, summary_text
from robostream.bench.stream.settings import OUT_DIR
from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the arguments."""
    parser.add_argument(
        "folder",
        nargs="?",
        type=Path,
        default=OUT_DIR,
        help="where results lie, in folders below too (%(default)s)",
    )
    parser.add_argument("--title", default="Streaming benchmark", help="of the page")


def run(args: argparse.Namespace) -> int:
    """Print the table, write summary.csv and report.html; 1 if a run failed."""
    return write_report(args.folder, title=args.title)


def write_report(folder: Path, *, title: str) -> int:
    """Print the table, write summary.csv and report.html; return 1 if a run failed, else 0."""
    found = collect(folder)
    for name, reason in found.failures.items():
        print(f"FAILED {name}: {reason}", file=sys.stderr)
    if not found.runs:
        raise RobostreamError(f"{folder}: want results of `bench stream`, found none")
    rows = group_rows(found.runs)
    print(summary_text(rows))
    for name, text in (
        ("summary.csv", summary_csv(rows)),
        ("report.html", page_html(rows, found.failures, title=title)),
    ):
        write_bytes_atomic(folder / name, text.encode())
        print(f"kept in {folder / name}")
    return 1 if found.failures else 0
