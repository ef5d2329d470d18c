# SPDX-License-Identifier: Apache-2.0
"""How long the metadata of a dataset takes to load, and how much memory, by its episodes.

Each size is loaded by processes of its own, so that their peak memory is their own. `load s` and
`fingerprint s` are times on the clock, `CPU s` is both together, summed over all threads.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream.bench.environment import machine
from robostream.bench.meta_folder import write_meta_folder
from robostream.bench.table import format_table

_MIB = 1024 * 1024
_LIMIT_BYTES = 1024 * _MIB  # what a million episodes may take, Python and libraries included
_COLUMNS = {
    "episodes": "episodes",
    "rows_per_group": "rows/group",
    "files": "files",
    "disk_bytes": "disk MiB",
    "column_bytes": "all columns MiB",
    "load_s": "load s",
    "fingerprint_s": "fingerprint s",
    "cpu_s": "CPU s",
    "kept_bytes": "kept MiB",
    "peak_bytes": "peak RSS MiB",
    "added_bytes": "above imports MiB",
}
_MEASURED = ("load_s", "fingerprint_s", "cpu_s", "kept_bytes", "peak_bytes", "added_bytes")


@dataclass(frozen=True, slots=True)
class _Case:
    """A size, and the rows its recorder wrote to the episode table at a time."""

    episodes: int
    rows_per_group: int


# Merging tools and robostream write all rows of a file at once; LeRobot's recorder writes 10 at a
# time, and the footer that lists such small groups is most of the file.
_CASES = (_Case(1_000, 20_000), _Case(1_000_000, 20_000), _Case(100_000, 10))
_QUICK_CASES = (_Case(1_000, 20_000), _Case(100_000, 20_000), _Case(5_000, 10))


def run(quick: bool) -> dict[str, Any]:
    """Load each size in fresh processes, print the table and return the figures."""
    cases = _QUICK_CASES if quick else _CASES
    rows = [measure(case, repeats=1 if quick else 5) for case in cases]
    print(format_table(list(_COLUMNS.values()), [_cells(row) for row in rows]))
    largest = max(rows, key=lambda row: int(row["episodes"]))
    print(
        f"{largest['episodes']:,} episodes with their fingerprint: "
        f"{largest['load_s'] + largest['fingerprint_s']:.2f} s, "
        f"{largest['peak_bytes'] / _MIB:,.0f} MiB of memory in all "
        f"(goal: below {_LIMIT_BYTES / _MIB:,.0f} MiB for 1,000,000)"
    )
    return {"limit_bytes": _LIMIT_BYTES, "rows": rows, "machine": machine()}


def measure(case: _Case, *, repeats: int) -> dict[str, Any]:
    """Return the medians of loading one size, from a folder that is made and removed again."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        root = Path(folder)
        column_bytes = write_meta_folder(root, case.episodes, rows_per_group=case.rows_per_group)
        sizes = [path.stat().st_size for path in root.rglob("episodes/*/*.parquet")]
        runs = [_load(root) for _ in range(repeats)]
    return {
        "episodes": case.episodes,
        "rows_per_group": case.rows_per_group,
        "files": len(sizes),
        "disk_bytes": sum(sizes),
        "column_bytes": column_bytes,
        **{name: statistics.median(run[name] for run in runs) for name in _MEASURED},
    }


def _load(root: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "robostream.bench.meta_load", str(root)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _cells(row: dict[str, Any]) -> list[object]:
    return [row[name] / _MIB if name.endswith("_bytes") else row[name] for name in _COLUMNS]
