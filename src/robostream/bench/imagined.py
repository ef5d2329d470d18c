# SPDX-License-Identifier: Apache-2.0
"""Imagined datasets of any size: metadata without data and videos, or rows without cameras."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, DatasetInfo, Features, tasks_to_arrow
from robostream.storage import write_bytes_atomic

CAMERAS = tuple(f"observation.images.{name}" for name in ("top", "front", "wrist"))
_JOINTS = 6
_FPS = 30
_MIN_FRAMES, _MAX_FRAMES = 150, 600
# Roughly what 100 MB of rows and 200 MB of 256x256 AV1 hold.
_EPISODES_PER_DATA_FILE = 2000
_EPISODES_PER_VIDEO_FILE = 250
_LENGTH = 300
_EPISODES_PER_FILE = 1000
_TASKS = tuple(
    f"{verb} the {thing} {where}"
    for verb in ("pick up", "push", "turn", "wipe", "hand over")
    for thing in ("red cup", "sponge", "drawer", "small box", "towel", "screwdriver")
    for where in ("on the left", "on the right", "next to the bowl")
)
# Statistics that take one of 256 levels for a camera; mean and std take any value.
_LEVELS = ("min", "max", "q01", "q10", "q50", "q90", "q99")
_MOMENTS = ("mean", "std")

Numbers = npt.NDArray[Any]


def write_meta_folder(root: Path, episodes: int, *, rows_per_group: int) -> int:
    """Write info.json, tasks.parquet and the episode table, with its statistics columns.

    Returns the bytes that all columns of the episode table would take in memory.

    Args:
        root: The dataset's folder.
        episodes: The number of episodes.
        rows_per_group: Rows of the episode table in one row group.
    """
    rng = np.random.default_rng(episodes)
    lengths = rng.integers(_MIN_FRAMES, _MAX_FRAMES, episodes, endpoint=True)
    info = DatasetInfo(
        fps=_FPS,
        features=_features(),
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


def write_rows_only(root: Path, frames: int) -> None:
    """Write a dataset of equally long episodes with the default columns and no cameras."""
    episodes = frames // _LENGTH
    info = DatasetInfo(
        fps=30,
        features=dict(DEFAULT_FEATURES),
        total_episodes=episodes,
        total_frames=episodes * _LENGTH,
        total_tasks=1,
        video_path=None,
    )
    write_bytes_atomic(root / config.INFO_PATH, info.to_json().encode())
    pq.write_table(tasks_to_arrow(["wait"]), root / config.TASKS_PATH)
    numbers = np.arange(episodes)
    table = {
        "episode_index": numbers,
        "length": np.full(episodes, _LENGTH),
        "data/chunk_index": np.zeros(episodes, np.int64),
        "data/file_index": numbers // _EPISODES_PER_FILE,
        "dataset_from_index": numbers * _LENGTH,
        "dataset_to_index": (numbers + 1) * _LENGTH,
    }
    path = root / config.EPISODES_PATH.format(chunk_index=0, file_index=0)
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table(table), path)
    for file in range(-(-episodes // _EPISODES_PER_FILE)):
        first = file * _EPISODES_PER_FILE
        _write_data_file(root, file, range(first, min(first + _EPISODES_PER_FILE, episodes)))


def _write_data_file(root: Path, file: int, episodes: range) -> None:
    path = root / config.DATA_PATH.format(chunk_index=0, file_index=file)
    path.parent.mkdir(parents=True, exist_ok=True)
    frames = np.tile(np.arange(_LENGTH), len(episodes))
    rows = {
        "timestamp": (frames / 30).astype(np.float32),
        "frame_index": frames,
        "episode_index": np.repeat(np.array(episodes), _LENGTH),
        "index": np.arange(episodes.start * _LENGTH, episodes.stop * _LENGTH),
        "task_index": np.zeros(len(frames), np.int64),
    }
    pq.write_table(pa.table(rows), path, row_group_size=_LENGTH)


def _features() -> Features:
    camera: dict[str, Any] = {
        "dtype": "video",
        "shape": (256, 256, 3),
        "names": ["height", "width", "channels"],
    }
    joints: dict[str, Any] = {"dtype": "float32", "shape": (_JOINTS,), "names": None}
    own = {**dict.fromkeys(CAMERAS, camera), "observation.state": joints, "action": joints}
    return {**own, **DEFAULT_FEATURES}


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
    file = episode // _EPISODES_PER_DATA_FILE
    columns = {
        "episode_index": episode,
        "length": lengths,
        "data/chunk_index": file // config.CHUNKS_SIZE,
        "data/file_index": file % config.CHUNKS_SIZE,
        "dataset_from_index": start,
        "dataset_to_index": stop,
    }
    for number, key in enumerate(CAMERAS):
        file = episode // (_EPISODES_PER_VIDEO_FILE + number)
        first = start[file * (_EPISODES_PER_VIDEO_FILE + number)]
        columns |= {
            f"videos/{key}/chunk_index": file // config.CHUNKS_SIZE,
            f"videos/{key}/file_index": file % config.CHUNKS_SIZE,
            f"videos/{key}/from_timestamp": (start - first) / _FPS,
            f"videos/{key}/to_timestamp": (stop - first) / _FPS,
        }
    return columns


def _task_lists(rows: int, rng: np.random.Generator) -> pa.Array:
    """Return one task for most episodes and two for some."""
    counts = 1 + (rng.random(rows) < 0.1)
    texts = pa.array(_TASKS).take(pa.array(rng.integers(0, len(_TASKS), counts.sum())))
    return pa.ListArray.from_arrays(np.append(0, np.cumsum(counts)).astype(np.int32), texts)


def _stats_columns(rows: int, features: Features, rng: np.random.Generator) -> dict[str, pa.Array]:
    columns: dict[str, pa.Array] = {}
    for key, entry in features.items():
        camera = entry["dtype"] in CAMERA_DTYPES
        shape = (3, 1, 1) if camera else entry["shape"]
        for name in _MOMENTS:
            columns[f"stats/{key}/{name}"] = _lists(rng.random((rows, *shape)))
        for name in _LEVELS:
            levels = rng.integers(0, 256, (rows, *shape)) / 255
            columns[f"stats/{key}/{name}"] = _lists(levels)
        columns[f"stats/{key}/count"] = _lists(rng.integers(100, 130, (rows, 1)))
    return columns


def _lists(values: Numbers) -> pa.Array:
    """Return rows of an array as nested lists, one level per axis."""
    nested = pa.array(values.reshape(-1))
    for length in reversed(values.shape[1:]):
        offsets = np.arange(0, len(nested) + 1, length, dtype=np.int32)
        nested = pa.ListArray.from_arrays(offsets, nested)
    return nested


def _with_file(table: pa.Table, file: int) -> pa.Table:
    """Return the rows with the columns that name their file of the episode table."""
    for name, number in (("chunk_index", 0), ("file_index", file)):
        column = pa.array(np.full(table.num_rows, number))
        table = table.append_column(f"meta/episodes/{name}", column)
    return table
