# SPDX-License-Identifier: Apache-2.0
"""`bench meta`: the time and memory it takes to load a dataset's metadata, by its episodes.

The datasets are imagined: metadata without data and videos. Each size is loaded in processes of its
own, so its peak memory is its own. `load s` and `fingerprint s` are wall-clock times; `CPU s`
covers both, summed over all threads.
"""

from __future__ import annotations

import itertools
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.bench.processes import peak_bytes, resident_bytes, run_process
from robostream.bench.results import Figures, medians
from robostream.bench.tables import Table
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    DatasetInfo,
    LeRobotDatasetMetadata,
    tasks_to_arrow,
)
from robostream.storage import write_bytes_atomic

Numbers = npt.NDArray[Any]

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
# The rows that fill a file of the format's size, in groups of 10 and in larger ones.
_ROWS_PER_FILE = {True: 40_000, False: 140_000}

CAMERAS = tuple(f"observation.images.{name}" for name in ("top", "front", "wrist"))
_CAMERA: dict[str, Any] = {
    "dtype": "video",
    "shape": (256, 256, 3),
    "names": ["height", "width", "channels"],
}
_JOINTS: dict[str, Any] = {"dtype": "float32", "shape": (6,), "names": None}
_FEATURES = {
    **dict.fromkeys(CAMERAS, _CAMERA),
    **dict.fromkeys(("observation.state", "action"), _JOINTS),
    **DEFAULT_FEATURES,
}
_FPS = 30
_MIN_FRAMES, _MAX_FRAMES = 150, 600
# Roughly what 100 MB of rows and 200 MB of 256x256 AV1 hold.
_EPISODES_PER_DATA_FILE = 2000
_EPISODES_PER_VIDEO_FILE = 250
_TASKS = [
    " ".join(words)
    for words in itertools.product(
        ("pick up", "push", "turn", "wipe", "hand over"),
        ("the red cup", "the sponge", "the drawer", "the small box", "the towel"),
        ("on the left", "on the right", "next to the bowl"),
    )
]
# Statistics that take one of 256 levels for a camera; mean and std take any value.
_LEVELS = ("min", "max", "q01", "q10", "q50", "q90", "q99")


def run(quick: bool) -> Figures:
    """Load each size in new processes, print the table and return the figures."""
    rows = []
    for episodes, rows_per_group in _QUICK_SIZES if quick else _SIZES:
        row = {"episodes": episodes, "rows_per_group": rows_per_group}
        with tempfile.TemporaryDirectory(prefix="robostream-bench-") as name:
            folder = Path(name)
            column_bytes = write_meta_folder(folder, **row)
            sizes = [path.stat().st_size for path in folder.rglob("episodes/*/*.parquet")]
            runs = [run_process(measure_load, root=name) for _ in range(1 if quick else 5)]
        stored = {"files": len(sizes), "disk_bytes": sum(sizes), "column_bytes": column_bytes}
        rows.append(row | stored | medians(runs))
    cells = [[row[n] / _MIB if n.endswith("_bytes") else row[n] for n in _COLUMNS] for row in rows]
    print(Table(list(_COLUMNS.values()), cells).text())
    largest = max(rows, key=lambda row: int(row["episodes"]))
    print(
        f"{largest['episodes']:,} episodes with their fingerprint: "
        f"{largest['load_s'] + largest['fingerprint_s']:.2f} s, "
        f"{largest['peak_bytes'] / _MIB:,.0f} MiB of memory in all "
        f"(goal: below {_LIMIT_BYTES / _MIB:,.0f} MiB for 1,000,000)"
    )
    return {"limit_bytes": _LIMIT_BYTES, "rows": rows}


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


def write_meta_folder(root: Path, episodes: int, *, rows_per_group: int) -> int:
    """Write info.json, tasks.parquet and the episode table, with its statistics columns.

    Returns the bytes that all columns of the episode table would take in memory.
    """
    rng = np.random.default_rng(episodes)
    lengths = rng.integers(_MIN_FRAMES, _MAX_FRAMES, episodes, endpoint=True)
    write_info(root, lengths, features=_FEATURES, tasks=_TASKS)
    columns = locate_episodes(lengths, CAMERAS, episodes_per_file=_EPISODES_PER_DATA_FILE)
    rows_per_file, column_bytes = _ROWS_PER_FILE[rows_per_group <= 10], 0
    for file, start in enumerate(range(0, episodes, rows_per_file)):
        rows = slice(start, start + rows_per_file)
        table = {name: pa.array(values[rows]) for name, values in columns.items()}
        count = len(table["length"])
        table["tasks"] = _task_lists(count, rng)
        table |= _stats_columns(count, rng)
        table |= _file_columns("meta/episodes", np.full(count, file))
        column_bytes += write_episodes(root, pa.table(table), file, rows_per_group=rows_per_group)
    return column_bytes


def write_info(root: Path, lengths: Numbers, *, features: Any, tasks: Sequence[str]) -> None:
    """Write the info.json and the tasks of a dataset whose episodes have these lengths."""
    info = DatasetInfo(
        fps=_FPS,
        features=features,
        total_episodes=len(lengths),
        total_frames=int(lengths.sum()),
        total_tasks=len(tasks),
        robot_type="imagined",
        splits={"train": f"0:{len(lengths)}"},
    )
    write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
    pq.write_table(tasks_to_arrow(tasks), root / config.TASKS_PATH)


def write_episodes(root: Path, table: pa.Table, file: int, *, rows_per_group: int) -> int:
    """Write a file of the episode table; return the bytes of its columns in memory."""
    path = root / config.EPISODES_PATH.format(chunk_index=0, file_index=file)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows_per_group)
    return int(table.nbytes)


def locate_episodes(
    lengths: Numbers, cameras: Sequence[str], *, episodes_per_file: int
) -> dict[str, Numbers]:
    """Return the location of each episode's frames: in the table, in Parquet and in MP4 files."""
    episode = np.arange(len(lengths))
    stop = np.cumsum(lengths)
    start = stop - lengths
    columns = {
        "episode_index": episode,
        "length": lengths,
        **_file_columns("data", episode // episodes_per_file),
        "dataset_from_index": start,
        "dataset_to_index": stop,
    }
    for number, key in enumerate(cameras):
        file = episode // (_EPISODES_PER_VIDEO_FILE + number)
        first = start[file * (_EPISODES_PER_VIDEO_FILE + number)]
        columns |= _file_columns(f"videos/{key}", file)
        columns[f"videos/{key}/from_timestamp"] = (start - first) / _FPS
        columns[f"videos/{key}/to_timestamp"] = (stop - first) / _FPS
    return columns


def _file_columns(name: str, file: Numbers) -> dict[str, Numbers]:
    chunk, number = np.divmod(file, config.CHUNKS_SIZE)
    return {f"{name}/chunk_index": chunk, f"{name}/file_index": number}


def _task_lists(rows: int, rng: np.random.Generator) -> pa.Array:
    """Return one task for most episodes and two for some."""
    counts = 1 + (rng.random(rows) < 0.1)
    texts = pa.array(_TASKS).take(pa.array(rng.integers(0, len(_TASKS), counts.sum())))
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(counts)).astype(np.int32), texts)


def _stats_columns(rows: int, rng: np.random.Generator) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for key, entry in _FEATURES.items():
        shape = (3, 1, 1) if entry["dtype"] in CAMERA_DTYPES else entry["shape"]
        for name in ("mean", "std"):
            columns[f"stats/{key}/{name}"] = _lists(rng.random((rows, *shape)))
        for name in _LEVELS:
            columns[f"stats/{key}/{name}"] = _lists(rng.integers(0, 256, (rows, *shape)) / 255)
        columns[f"stats/{key}/count"] = _lists(rng.integers(100, 130, (rows, 1)))
    return columns


def _lists(values: Numbers) -> pa.Array:
    """Return rows of an array as nested lists, one level per axis."""
    nested = pa.array(values.reshape(-1))
    for length in reversed(values.shape[1:]):
        offsets = np.arange(0, len(nested) + 1, length, dtype=np.int32)
        nested = pa.ListArray.from_arrays(offsets, nested)
    return nested
