# SPDX-License-Identifier: Apache-2.0
"""`bench meta` and `bench rows`: loading metadata, reading rows, and the time of a resume.

`bench meta` imagines datasets: metadata without data and videos. Each size is loaded in processes
of its own, so its peak memory is its own. `load s` and `fingerprint s` are wall-clock times;
`CPU s` covers both, summed over all threads.

`bench rows` reads rows whose row groups are not episodes: datasets converted from v2.1 have one row
group per data file. The same rows are read in three ways, which take turns: from files with a row
group per episode, the ideal; from files with one row group, by each process separately; and from
those files decoded once for all processes.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.bench.measure import consume, merge_row_groups, run_rounds
from robostream.bench.processes import resident_bytes, run_process
from robostream.bench.results import Measured, Table, medians, ratios
from robostream.byte_sizes import format_bytes
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
_CAMERA = {"dtype": "video", "shape": (256, 256, 3), "names": ["height", "width", "channels"]}
_JOINTS = {"dtype": "float32", "shape": (6,), "names": None}
_FEATURES: dict[str, Any] = {
    **dict.fromkeys(CAMERAS, _CAMERA),
    **dict.fromkeys(("observation.state", "action"), _JOINTS),
    **DEFAULT_FEATURES,
}
_FPS = 30
_MIN_FRAMES, _MAX_FRAMES = 150, 600
# Roughly what 100 MB of rows and 200 MB of 256x256 AV1 hold.
_EPISODES_PER_DATA_FILE = 2000
_EPISODES_PER_VIDEO_FILE = 250
_TASKS = [f"pick up the red cup from box {number}" for number in range(75)]
# Statistics that take one of 256 levels for a camera; mean and std take any value.
_LEVELS = ("min", "max", "q01", "q10", "q50", "q90", "q99")

_NUMBERS = 128  # of a state and of an action, random: a row takes about 1 KB
_EPISODE_FRAMES = 300
_FILE_MB = 28
# By name: the folder of the dataset and the limit of the cache.
_ROW_CASES = {
    "a group per episode": ("episodes", "10GB"),
    "a group per file, not shared": ("files", "0"),
    "a group per file, shared": ("files", "10GB"),
}
_RESUME_BATCH = 32
# How much of the epoch was delivered before the resume.
_RESUME_SHARES = (0.0, 0.5, 0.9)


def run(quick: bool) -> Measured:
    """Load each size in new processes."""
    rows = []
    for episodes, rows_per_group in _QUICK_SIZES if quick else _SIZES:
        row = {"episodes": episodes, "rows_per_group": rows_per_group}
        with tempfile.TemporaryDirectory(prefix="robostream-bench-") as name:
            column_bytes = write_meta_folder(Path(name), **row)
            sizes = [path.stat().st_size for path in Path(name).rglob("episodes/*/*.parquet")]
            runs = [run_process(measure_load, root=name) for _ in range(1 if quick else 5)]
        stored = {"files": len(sizes), "disk_bytes": sum(sizes), "column_bytes": column_bytes}
        rows.append(row | stored | medians(runs))
    cells = [[row[n] / _MIB if n.endswith("_bytes") else row[n] for n in _COLUMNS] for row in rows]
    largest = max(rows, key=lambda row: int(row["episodes"]))
    return {"limit_bytes": _LIMIT_BYTES, "rows": rows}, (
        f"{Table(list(_COLUMNS.values()), cells).text()}\n"
        f"{largest['episodes']:,} episodes with their fingerprint: "
        f"{largest['load_s'] + largest['fingerprint_s']:.2f} s, "
        f"{largest['peak_bytes'] / _MIB:,.0f} MiB of memory in all "
        f"(goal: below {_LIMIT_BYTES / _MIB:,.0f} MiB for 1,000,000)"
    )


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
        "peak_bytes": resident_bytes(peak=True),
        # The kernel updates its two counters with different delays.
        "added_bytes": max(resident_bytes(peak=True) - imported_bytes, 0),
    }


def write_meta_folder(root: Path, episodes: int, *, rows_per_group: int) -> int:
    """Write the metadata of an imagined dataset: info.json, tasks.parquet, the episode table.

    Returns the bytes that all columns of the episode table would take in memory.
    """
    rng = np.random.default_rng(episodes)
    lengths = rng.integers(_MIN_FRAMES, _MAX_FRAMES, episodes, endpoint=True)
    return _write_meta(root, lengths, features=_FEATURES, rows_per_group=rows_per_group)


def _write_meta(root: Path, lengths: Numbers, *, features: Any, rows_per_group: int) -> int:
    info = DatasetInfo(
        fps=_FPS,
        features=features,
        total_episodes=len(lengths),
        total_frames=int(lengths.sum()),
        total_tasks=len(_TASKS),
        robot_type="imagined",
        splits={"train": f"0:{len(lengths)}"},
    )
    write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
    pq.write_table(tasks_to_arrow(_TASKS), root / config.TASKS_PATH)
    columns = _locate_episodes(lengths, info.video_keys)
    rng, column_bytes = np.random.default_rng(len(lengths)), 0
    rows_per_file = _ROWS_PER_FILE[rows_per_group <= 10]
    for file, start in enumerate(range(0, len(lengths), rows_per_file)):
        rows = slice(start, start + rows_per_file)
        parts = {name: pa.array(values[rows]) for name, values in columns.items()}
        count = len(parts["length"])
        # One task for most episodes, and two for some.
        ends = np.cumsum(1 + (rng.random(count) < 0.1))
        texts = pa.array(_TASKS).take(pa.array(rng.integers(0, len(_TASKS), ends[-1])))
        parts["tasks"] = pa.ListArray.from_arrays(np.append(0, ends).astype(np.int32), texts)
        parts |= _stats_columns(features, count, rng)
        parts |= _file_columns("meta/episodes", np.full(count, file))
        table = pa.table(parts)
        path = root / config.EPISODES_PATH.format(chunk_index=0, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path, row_group_size=rows_per_group)
        column_bytes += table.nbytes
    return column_bytes


def _locate_episodes(lengths: Numbers, cameras: Sequence[str]) -> dict[str, Numbers]:
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


def _stats_columns(
    features: Mapping[str, Any], rows: int, rng: np.random.Generator
) -> dict[str, pa.Array]:
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


def run_rows(quick: bool) -> Measured:
    """Measure all cases."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        _make_folders(Path(folder), files=2 if quick else 5)
        sizes = [path.stat().st_size for path in Path(folder, "files/data").rglob("*.parquet")]
        cache = Path(folder, "cache")

        def read(root: str, limit: str) -> list[float]:
            """Return samples/s of two epochs that start with an empty cache."""
            shutil.rmtree(cache, ignore_errors=True)
            variables = {"ROBOSTREAM_CACHE": str(cache), "ROBOSTREAM_CACHE_LIMIT": limit}
            rates: list[float] = run_process(
                measure_epochs, environment=variables, root=f"{folder}/{root}", epochs=2
            )
            return rates

        runs = {name: partial(read, *case) for name, case in _ROW_CASES.items()}
        rates = run_rounds(runs, rounds=1 if quick else 3)
    rows = [(name, *map(median, zip(*found, strict=True))) for name, found in rates.items()]
    table = Table(("rows", "epoch 1, samples/s", "epoch 2, samples/s"), rows)
    about = f"{len(sizes)} data files, {format_bytes(sum(sizes))} in all"
    return {"rates": rates}, f"{about}\n{table.text()}"


def _make_folders(folder: Path, *, files: int) -> None:
    """Write the same dataset twice: with a row group per episode, and with one per file."""
    from robostream.write import create_writer  # not imported by processes that are measured

    rng = np.random.default_rng(0)
    vector = {"dtype": "float32", "shape": (_NUMBERS,), "names": None}
    rows = int(files * _FILE_MB * 1024**2 / (8 * _NUMBERS))
    with create_writer(
        folder / "episodes",
        fps=20,
        features={"observation.state": vector, "action": vector},
        data_files_size_in_mb=_FILE_MB,
    ) as writer:
        for _ in range(rows // _EPISODE_FRAMES):
            for state, action in rng.random((_EPISODE_FRAMES, 2, _NUMBERS), np.float32):
                writer.add_frame({"observation.state": state, "action": action, "task": "move"})
            writer.save_episode()
    merge_row_groups(folder / "episodes", folder / "files")


def measure_epochs(root: str, epochs: int) -> list[float]:
    """Return samples/s of each epoch in this process; the first includes the workers' start."""
    from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset  # imports torch

    stream = StreamingLeRobotDataset("bench/rows", root=root, rank=0, world_size=1)
    loader = StreamingDataLoader(stream, batch_size=64)
    rates = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        times = consume(loader, warmup_batches=0)
        rates.append(times.num_measured / times.end_s)
    loader.close()
    return rates


def measure_resume(frames: int, rounds: int = 9) -> Measured:
    """Return the seconds from loading a state to the first batch, by position.

    The dataset has no cameras, so this is the time to find the position and to read rows.
    """
    from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset  # imports torch

    states: dict[float, dict[str, object]] = {}

    def resume(share: float) -> float:
        loader = StreamingDataLoader(stream, _RESUME_BATCH)
        if share not in states:  # in the first round, which warms up
            batches = int(share * len(loader))
            loader.load_state_dict({"batches_consumed": batches, "batch_size": _RESUME_BATCH})
            states[share] = loader.state_dict()
        begin = time.perf_counter()
        loader.load_state_dict(states[share])
        iterator = iter(loader)
        next(iterator)
        seconds = time.perf_counter() - begin
        del iterator  # closes it
        return seconds

    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        _write_rows(Path(folder), frames)
        stream = StreamingLeRobotDataset("bench/resume", root=folder, rank=0, world_size=1)
        runs = {share: partial(resume, share) for share in _RESUME_SHARES}
        found = run_rounds(runs, rounds + 1)
    seconds = {share: values[1:] for share, values in found.items()}  # the first warms up
    base = seconds[_RESUME_SHARES[0]]
    rows = [[f"{share:.0%}", median(s), median(ratios(s, base))] for share, s in seconds.items()]
    title = f"resume in an epoch of {frames:,} frames (goal: within 1.2 of the start)"
    table = Table(["resumed at", "seconds to first batch", "over start"], rows)
    return {f"{share:.0%}": median(s) for share, s in seconds.items()}, f"{title}\n{table.text()}"


def _write_rows(root: Path, frames: int) -> None:
    """Write a dataset of equally long episodes with the default columns and no cameras."""
    lengths = np.full(frames // _EPISODE_FRAMES, _EPISODE_FRAMES)
    _write_meta(root, lengths, features=dict(DEFAULT_FEATURES), rows_per_group=len(lengths))
    rows_per_file = _EPISODES_PER_DATA_FILE * _EPISODE_FRAMES
    for file, first in enumerate(range(0, lengths.sum(), rows_per_file)):
        path = root / config.DATA_PATH.format(chunk_index=0, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        index = np.arange(first, min(first + rows_per_file, lengths.sum()))
        episode, frame = np.divmod(index, _EPISODE_FRAMES)
        columns = {
            "timestamp": (frame / _FPS).astype(np.float32),
            "frame_index": frame,
            "episode_index": episode,
            "index": index,
            "task_index": np.zeros_like(index),
        }
        pq.write_table(pa.table(columns), path, row_group_size=_EPISODE_FRAMES)
