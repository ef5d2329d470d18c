# SPDX-License-Identifier: Apache-2.0
"""The runs below a folder, and what failed there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robostream.bench.results import Figures, read_figures
from robostream.errors import RobostreamError

# What every result of `bench stream` has; other JSON files may lie beside them.
_MARK = "frames_per_s_node"


@dataclass(frozen=True, slots=True)
class Collected:
    """What lies below a folder.

    Attributes:
        runs: The figures of each run, in the order of their files' names.
        failures: Why a run has no figures, by the name of its file.
    """

    runs: list[Figures]
    failures: dict[str, str]


def collect(folder: Path) -> Collected:
    """Return all results below a folder.

    A file NAME.failed says that a run failed, and its first line why; a job that runs the benchmark
    may leave one. A JSON that cannot be read is a failure, too.
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
        failures[str(path.relative_to(folder))] = reason[0] if reason else "no reason was given"
    return Collected(runs, failures)
