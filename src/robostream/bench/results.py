# SPDX-License-Identifier: Apache-2.0
"""Results: figures on disk, medians over rounds, and the machine they were measured on."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import re
import subprocess
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

from robostream.errors import RobostreamError, SelectionError
from robostream.storage import write_bytes_atomic

Figures = dict[str, Any]
_PACKAGES = ("robostream", "torch", "numpy", "pyarrow", "av", "huggingface_hub", "fsspec")


def write_json(path: Path, figures: Any) -> None:
    """Write figures as indented JSON, atomically."""
    write_bytes_atomic(path, (json.dumps(figures, indent=2, sort_keys=False) + "\n").encode())


def ensure_writable(folder: Path) -> None:
    """Raise if a folder cannot be created or written to. Leaves nothing there.

    Long measurements call this first.
    """
    absolute = folder.absolute()
    try:
        existing = next(path for path in (absolute, *absolute.parents) if path.exists())
        with tempfile.TemporaryFile(dir=existing):
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
    row = {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in figures.items()
    }
    write_json(path.with_suffix(".json"), figures)
    write_bytes_atomic(path, csv_text([row]).encode())
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


def select_named(known: Iterable[Any], names: Sequence[str]) -> list[Any]:
    """Return the cases or loaders with these names; all of them without names. Pure."""
    by_name = {entry.name: entry for entry in known}
    if unknown := sorted(set(names) - set(by_name)):
        raise SelectionError(f"want some of {', '.join(by_name)}; got {', '.join(unknown)}")
    return [entry for name, entry in by_name.items() if not names or name in names]


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
    command = ["git", "-C", str(source), "describe", "--always", "--exclude=*", "--abbrev=12"]
    try:
        done = subprocess.run(
            [*command, "--dirty"], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


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
