# SPDX-License-Identifier: Apache-2.0
"""`bench meta`: the time and memory it takes to load a dataset's metadata, by its episodes.

The datasets are imagined: metadata without data and videos. Each size is loaded in processes of its
own, so its peak memory is its own. `load s` and `fingerprint s` are wall-clock times; `CPU s`
covers both, summed over all threads.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.bench.processes import peak_bytes, resident_bytes, run_process
from robostream.bench.results import Figures, machine, medians
from robostream.bench.tables import format_table
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    DatasetInfo,
    Features,
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

CAMERAS = tuple(f"observation.images.{name}" for name in ("top", "front", "wrist"))
_JOINTS = 6
_FPS = 30
_MIN_FRAMES, _MAX_FRAMES = 150, 600
# Roughly what 100 MB of rows and 200 MB of 256x256 AV1 hold.
_EPISODES_PER_DATA_FILE = 2000
_EPISODES_PER_VIDEO_FILE = 250
_TASKS = tuple(
    f"{verb} the {thing} {where}"
    for verb in ("pick up", "push", "turn", "wipe", "hand over")
    for thing in ("red cup", "sponge", "drawer", "small box", "towel", "screwdriver")
    for where in ("on the left", "on the right", "next to the bowl")
)
# Statistics that take one of 256 levels for a camera; mean and std take any value.
_LEVELS = ("min", "max", "q01", "q10", "q50", "q90", "q99")


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


def _cells(row: Figures) -> list[object]:
    return [row[name] / _MIB if name.endswith("_bytes") else row[name] for name in _COLUMNS]


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


def write_meta_folder(root: Path, episodes: int, *, rows_per_group: int) -> int:
    """Write info.json, tasks.parquet and the episode table, with its statistics columns.

    Returns the bytes that all columns of the episode table would take in memory.
    """
    rng = np.random.default_rng(episodes)
    lengths = rng.integers(_MIN_FRAMES, _MAX_FRAMES, episodes, endpoint=True)
    camera: dict[str, Any] = {
        "dtype": "video",
        "shape": (256, 256, 3),
        "names": ["height", "width", "channels"],
    }
    joints: dict[str, Any] = {"dtype": "float32", "shape": (_JOINTS,), "names": None}
    own = {**dict.fromkeys(CAMERAS, camera), "observation.state": joints, "action": joints}
    info = DatasetInfo(
        fps=_FPS,
        features={**own, **DEFAULT_FEATURES},
        total_episodes=episodes,
        total_frames=int(lengths.sum()),
        total_tasks=len(_TASKS),
        robot_type="imagined",
        splits={"train": f"0:{episodes}"},
    )
    write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
    pq.write_table(tasks_to_arrow(_TASKS), root / config.TASKS_PATH)
    tables = _tables(lengths, info.features, rng)
    return _write_tables(root, tables, rows_per_group=rows_per_group)


def _write_tables(root: Path, tables: Iterator[pa.Table], *, rows_per_group: int) -> int:
    """Write the tables to files of the format's size; return the bytes of the tables."""
    limit_bytes = config.DATA_FILES_SIZE_IN_MB * 1024 * 1024
    number = column_bytes = 0
    table = next(tables, None)
    while table is not None:
        path = root / config.EPISODES_PATH.format(chunk_index=0, file_index=number)
        path.parent.mkdir(parents=True, exist_ok=True)
        with pq.ParquetWriter(path, _with_file(table, number).schema) as writer:
            while table is not None and path.stat().st_size < limit_bytes:
                writer.write_table(_with_file(table, number), row_group_size=rows_per_group)
                column_bytes += table.nbytes
                table = next(tables, None)
        number += 1
    return column_bytes


def _with_file(table: pa.Table, file: int) -> pa.Table:
    """Return the rows with the columns that name their file of the episode table."""
    for name, number in (("chunk_index", 0), ("file_index", file)):
        column = pa.array(np.full(table.num_rows, number))
        table = table.append_column(f"meta/episodes/{name}", column)
    return table


def _tables(lengths: Numbers, features: Features, rng: np.random.Generator) -> Iterator[pa.Table]:
    columns = _location_columns(lengths)
    rows = 20_000  # all rows of a million episodes take 3 GB
    for start in range(0, len(lengths), rows):
        part = {name: pa.array(values[start : start + rows]) for name, values in columns.items()}
        count = min(rows, len(lengths) - start)
        part["tasks"] = _task_lists(count, rng)
        yield pa.table(part | _stats_columns(count, features, rng))


def _location_columns(lengths: Numbers) -> dict[str, Numbers]:
    """Return the location of each episode's frames: in the table, in Parquet and in MP4 files."""
    episode = np.arange(len(lengths))
    stop = np.cumsum(lengths)
    start = stop - lengths
    columns = {
        "episode_index": episode,
        "length": lengths,
        **_file_columns("data", episode // _EPISODES_PER_DATA_FILE),
        "dataset_from_index": start,
        "dataset_to_index": stop,
    }
    for number, key in enumerate(CAMERAS):
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


def _stats_columns(rows: int, features: Features, rng: np.random.Generator) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for key, entry in features.items():
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
