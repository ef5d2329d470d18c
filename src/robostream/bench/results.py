# SPDX-License-Identifier: Apache-2.0
"""Figures on disk and over rounds: the one place where results are kept, read and averaged."""

from __future__ import annotations

import csv
import io
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from robostream.errors import RobostreamError
from robostream.storage import write_bytes_atomic

Figures = dict[str, Any]


def write_json(path: Path, figures: Any) -> None:
    """Write figures as JSON that a person can read, too; whole or not at all."""
    write_bytes_atomic(path, (json.dumps(figures, indent=2, sort_keys=False) + "\n").encode())


def ensure_writable(folder: Path) -> None:
    """Raise if results cannot be written to a folder, or it cannot be made; leaves nothing there.

    For a measurement that takes long to ask at its begin.
    """
    whole = folder.absolute()
    try:
        there = next(path for path in (whole, *whole.parents) if path.exists())
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        raise RobostreamError(
            f"results cannot be written to {folder}: {error.strerror}. Choose another folder."
        ) from error


def keep_run(folder: Path, name: str, figures: Figures) -> Path:
    """Keep the figures of one run as JSON and CSV under a name of its own; return the JSON's path.

    A stamp behind the name keeps an earlier run from being overwritten, also by a run that ends in
    the same second, on this node or another.
    """
    path = _new_name(folder, f"{name}_{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    write_json(path, figures)
    write_bytes_atomic(path.with_suffix(".csv"), csv_text([flat(figures)]).encode())
    return path


def csv_text(rows: Sequence[Figures]) -> str:
    """Return rows as CSV, with the columns of the first; text that holds commas is quoted. Pure."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def flat(figures: Figures) -> Figures:
    """Return figures as one row: what is nested becomes JSON text. Pure."""
    return {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in figures.items()
    }


def read_figures(path: Path) -> Figures:
    """Return the figures of a file; raise an error that names it where it holds none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RobostreamError(f"{path}: want the JSON of a benchmark, found {error}") from error
    if not isinstance(found, dict):
        raise RobostreamError(f"{path}: want a JSON object, found {type(found).__name__}")
    return found


def medians(rounds: Sequence[Figures]) -> Figures:
    """Return the median of every number that all rounds have. Pure."""
    return {
        name: median(figures[name] for figures in rounds)
        for name in rounds[0]
        if all(_is_number(figures.get(name)) for figures in rounds)
    }


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median over rounds of one round's quotient. Pure."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _new_name(folder: Path, stem: str) -> Path:
    """Return the JSON's path of a name nobody has; the CSV made here and now reserves it."""
    folder.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        path = folder / f"{stem}{f'-{number}' if number else ''}.csv"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return path.with_suffix(".json")
