# SPDX-License-Identifier: Apache-2.0
"""How long a resume takes at the start and near the end of a long epoch."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.bench.table import format_table
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.meta import DEFAULT_FEATURES, DatasetInfo, tasks_to_arrow
from robostream.storage import write_bytes_atomic

_LENGTH = 300
_EPISODES_PER_FILE = 1000
_BATCH = 32
# How much of the epoch was delivered before.
_SHARES = (0.0, 0.5, 0.9)


def measure_resume(frames: int, rounds: int = 9) -> dict[str, float]:
    """Print and return the seconds from loading a state to the first batch, by its position.

    The dataset has no cameras, so this is the time to find the position and to read rows.

    Args:
        frames: How many the epoch has.
        rounds: How often each position is measured; the median counts.
    """
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        root = Path(folder)
        write_rows_only(root, frames // _LENGTH)
        stream = StreamingLeRobotDataset("bench/resume", root=root, rank=0, world_size=1)
        states = {share: _state_at(stream, share) for share in _SHARES}
        seconds: dict[float, list[float]] = {share: [] for share in _SHARES}
        for round_number in range(rounds + 1):
            for share, state in states.items():
                taken = _resume_once(stream, state)
                if round_number:  # the first round only warms up
                    seconds[share].append(taken)
    base = seconds[_SHARES[0]]
    rows = [
        [f"{share:.0%}", median(s), median(a / b for a, b in zip(s, base, strict=True))]
        for share, s in seconds.items()
    ]
    print(f"\nresume in an epoch of {frames:,} frames (goal: within 1.2 of the start)")
    print(format_table(["resumed at", "seconds to first batch", "over start"], rows), flush=True)
    return {f"{share:.0%}": median(s) for share, s in seconds.items()}


def write_rows_only(root: Path, episodes: int) -> None:
    """Write a dataset of many equal episodes with default columns and no cameras."""
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


def _state_at(stream: StreamingLeRobotDataset, share: float) -> dict[str, object]:
    loader = StreamingDataLoader(stream, _BATCH)
    batches = int(share * len(loader))
    loader.load_state_dict({"batches_consumed": batches, "batch_size": _BATCH})
    return loader.state_dict()


def _resume_once(stream: StreamingLeRobotDataset, state: dict[str, object]) -> float:
    loader = StreamingDataLoader(stream, _BATCH)
    begin = time.perf_counter()
    loader.load_state_dict(state)
    iterator = iter(loader)
    next(iterator)
    taken = time.perf_counter() - begin
    iterator.close()
    return taken
