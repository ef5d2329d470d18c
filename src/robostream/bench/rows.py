# SPDX-License-Identifier: Apache-2.0
"""`bench rows`: reading rows whose row groups are not episodes; and the time of a resume.

Datasets converted from v2.1 have one row group per data file. The same rows are read in three ways:
from files with a row group per episode, the ideal; from files with one row group, by each process
separately; and from those files decoded once for all processes. The ways take turns, each in a
process of its own.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.bench.case import merge_row_groups
from robostream.bench.measure import consume, run_rounds
from robostream.bench.meta import locate_episodes, write_episodes, write_info
from robostream.bench.processes import run_process
from robostream.bench.results import Figures, ratios
from robostream.bench.tables import Table
from robostream.byte_sizes import format_bytes
from robostream.meta import DEFAULT_FEATURES
from robostream.write import create_writer

_NUMBERS = 128  # of a state and of an action, random: a row takes about 1 KB
_EPISODE_FRAMES = 300
_FILE_MB = 28
# By name: the folder of the dataset and the limit of the cache.
_CASES = {
    "a group per episode": ("episodes", "10GB"),
    "a group per file, not shared": ("files", "0"),
    "a group per file, shared": ("files", "10GB"),
}
_EPISODES_PER_FILE = 1000  # of the dataset for resumes
_RESUME_BATCH = 32
# How much of the epoch was delivered before the resume.
_RESUME_SHARES = (0.0, 0.5, 0.9)


def run(quick: bool) -> Figures:
    """Measure all cases, print the table and return the figures."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        make_folders(Path(folder), files=2 if quick else 5)
        sizes = [path.stat().st_size for path in Path(folder, "files/data").rglob("*.parquet")]
        print(f"{len(sizes)} data files, {format_bytes(sum(sizes))} in all", flush=True)
        runs = {name: partial(_measure, Path(folder), *case) for name, case in _CASES.items()}
        rates = run_rounds(runs, rounds=1 if quick else 3)
    rows = [(name, *map(median, zip(*found, strict=True))) for name, found in rates.items()]
    print(Table(("rows", "epoch 1, samples/s", "epoch 2, samples/s"), rows).text())
    return {"rates": rates}


def make_folders(folder: Path, *, files: int) -> None:
    """Write the same dataset twice: with a row group per episode, and with one per file."""
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


def _measure(folder: Path, root: str, limit: str) -> list[float]:
    """Return samples/s of two epochs that start with an empty cache."""
    cache = folder / "cache"
    variables = {"ROBOSTREAM_CACHE": str(cache), "ROBOSTREAM_CACHE_LIMIT": limit}
    rates: list[float] = run_process(
        measure_epochs, environment=variables, root=str(folder / root), epochs=2
    )
    shutil.rmtree(cache, ignore_errors=True)
    return rates


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


def measure_resume(frames: int, rounds: int = 9) -> dict[str, float]:
    """Print and return the seconds from loading a state to the first batch, by position.

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
        write_rows_only(Path(folder), frames)
        stream = StreamingLeRobotDataset("bench/resume", root=folder, rank=0, world_size=1)
        runs = {share: partial(resume, share) for share in _RESUME_SHARES}
        found = run_rounds(runs, rounds + 1)
    seconds = {share: values[1:] for share, values in found.items()}  # the first warms up
    base = seconds[_RESUME_SHARES[0]]
    rows = [[f"{share:.0%}", median(s), median(ratios(s, base))] for share, s in seconds.items()]
    print(f"\nresume in an epoch of {frames:,} frames (goal: within 1.2 of the start)")
    table = Table(["resumed at", "seconds to first batch", "over start"], rows)
    print(table.text(), flush=True)
    return {f"{share:.0%}": median(s) for share, s in seconds.items()}


def write_rows_only(root: Path, frames: int) -> None:
    """Write a dataset of equally long episodes with the default columns and no cameras."""
    lengths = np.full(frames // _EPISODE_FRAMES, _EPISODE_FRAMES)
    write_info(root, lengths, features=dict(DEFAULT_FEATURES), tasks=["wait"])
    table = pa.table(locate_episodes(lengths, (), episodes_per_file=_EPISODES_PER_FILE))
    write_episodes(root, table, 0, rows_per_group=len(lengths))
    frame = np.tile(np.arange(_EPISODE_FRAMES), _EPISODES_PER_FILE)
    for file, first in enumerate(range(0, len(lengths), _EPISODES_PER_FILE)):
        path = root / config.DATA_PATH.format(chunk_index=0, file_index=file)
        path.parent.mkdir(parents=True, exist_ok=True)
        episodes = np.arange(first, min(first + _EPISODES_PER_FILE, len(lengths)))
        episode = np.repeat(episodes, _EPISODE_FRAMES)
        own = frame[: len(episode)]
        columns = {
            "timestamp": (own / 30).astype(np.float32),
            "frame_index": own,
            "episode_index": episode,
            "index": episode * _EPISODE_FRAMES + own,
            "task_index": np.zeros_like(own),
        }
        pq.write_table(pa.table(columns), path, row_group_size=_EPISODE_FRAMES)
