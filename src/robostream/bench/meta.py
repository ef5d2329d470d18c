# SPDX-License-Identifier: Apache-2.0
"""`bench meta`: the time and memory it takes to load a dataset's metadata, by its episodes.

Each size is loaded in processes of its own, so its peak memory is its own. `load s` and
`fingerprint s` are wall-clock times; `CPU s` covers both, summed over all threads.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from robostream.bench.imagined import write_meta_folder
from robostream.bench.memory import peak_bytes, resident_bytes
from robostream.bench.process import run_process
from robostream.bench.results import Figures, machine, medians
from robostream.bench.table import format_table
from robostream.meta import LeRobotDatasetMetadata

_MIB = 1024 * 1024
_LIMIT_BYTES = 1024 * _MIB  # for a million episodes, Python and libraries included
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
# Episodes, and the rows of the episode table in one row group. Merging tools and robostream write
# all rows of a file at once; LeRobot's recorder writes 10 at a time, and the footer that lists such
# small groups is most of the file.
_SIZES = ((1_000, 20_000), (1_000_000, 20_000), (100_000, 10))
_QUICK_SIZES = ((1_000, 20_000), (100_000, 20_000), (5_000, 10))


def run(quick: bool) -> Figures:
    """Load each size in new processes, print the table and return the figures."""
    sizes = _QUICK_SIZES if quick else _SIZES
    rows = [_measure(*size, repeats=1 if quick else 5) for size in sizes]
    print(format_table(list(_COLUMNS.values()), [_cells(row) for row in rows]))
    largest = max(rows, key=lambda row: int(row["episodes"]))
    print(
        f"{largest['episodes']:,} episodes with their fingerprint: "
        f"{largest['load_s'] + largest['fingerprint_s']:.2f} s, "
        f"{largest['peak_bytes'] / _MIB:,.0f} MiB of memory in all "
        f"(goal: below {_LIMIT_BYTES / _MIB:,.0f} MiB for 1,000,000)"
    )
    return {"limit_bytes": _LIMIT_BYTES, "rows": rows, "machine": machine()}


def _measure(episodes: int, rows_per_group: int, *, repeats: int) -> Figures:
    """Return the medians of loading one size from a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        column_bytes = write_meta_folder(Path(folder), episodes, rows_per_group=rows_per_group)
        sizes = [path.stat().st_size for path in Path(folder).rglob("episodes/*/*.parquet")]
        runs = [run_process(measure_load, root=folder) for _ in range(repeats)]
    return {
        "episodes": episodes,
        "rows_per_group": rows_per_group,
        "files": len(sizes),
        "disk_bytes": sum(sizes),
        "column_bytes": column_bytes,
        **medians(runs),
    }


def measure_load(root: str) -> dict[str, float]:
    """Load the metadata and its fingerprint in this process; return seconds and bytes."""
    imported_bytes = resident_bytes()
    started_cpu_s, started_s = time.process_time(), time.perf_counter()
    meta = LeRobotDatasetMetadata("bench/meta", root=root)
    loaded_s = time.perf_counter()
    _ = meta.fingerprint  # computed on first access
    finished_s = time.perf_counter()
    return {
        "load_s": loaded_s - started_s,
        "fingerprint_s": finished_s - loaded_s,
        "cpu_s": time.process_time() - started_cpu_s,
        "kept_bytes": meta.episodes.nbytes,
        "peak_bytes": peak_bytes(),
        # The kernel updates its two counters with different delays.
        "added_bytes": max(peak_bytes() - imported_bytes, 0),
    }


def _cells(row: Figures) -> list[object]:
    return [row[name] / _MIB if name.endswith("_bytes") else row[name] for name in _COLUMNS]
