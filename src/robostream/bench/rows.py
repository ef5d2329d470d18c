# SPDX-License-Identifier: Apache-2.0
"""Rows alone: what it costs when the row groups of a dataset are not its episodes.

Datasets that were converted from v2.1 have one row group per data file. The same rows are read in
three ways: from files with a group per episode, which is the best there is; from files with one
group, each process for itself; and from those files decoded once for all processes. The ways take
turns, in processes of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from robostream.bench.environment import machine
from robostream.bench.table import format_table
from robostream.byte_sizes import format_bytes
from robostream.write import create_writer

_NUMBERS = 128  # of a state and of an action, random: a row is about 1 KB
_EPISODE_FRAMES = 300
_FILE_MB = 28
# Name, folder of the dataset, limit of the cache.
_CASES = (
    ("a group per episode", "episodes", "10GB"),
    ("a group per file, not shared", "files", "0"),
    ("a group per file, shared", "files", "10GB"),
)


def run(quick: bool) -> dict[str, Any]:
    """Measure all cases, print the table and return the figures."""
    with tempfile.TemporaryDirectory(prefix="robostream-bench-") as folder:
        make_folders(Path(folder), files=2 if quick else 5)
        sizes = [path.stat().st_size for path in Path(folder, "files/data").rglob("*.parquet")]
        print(f"{len(sizes)} data files, {format_bytes(sum(sizes))} in all", flush=True)
        rates: dict[str, list[list[float]]] = {name: [] for name, *_ in _CASES}
        for _ in range(1 if quick else 3):
            for name, root, limit in _CASES:
                rates[name].append(_measure(Path(folder), root, limit))
    rows = [(name, *map(statistics.median, zip(*rates[name], strict=True))) for name, *_ in _CASES]
    print(format_table(("rows", "epoch 1, samples/s", "epoch 2, samples/s"), rows))
    return {"rates": rates, "machine": machine()}


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
    shutil.copytree(folder / "episodes", folder / "files")
    for path in (folder / "files/data").rglob("*.parquet"):
        pq.write_table(pq.read_table(path), path, row_group_size=1 << 30)


def _measure(folder: Path, root: str, limit: str) -> list[float]:
    """Return samples/s of two epochs, from a cache that is empty at first."""
    cache = folder / "cache"
    command = [sys.executable, "-m", "robostream.bench.rows_run", str(folder / root), "2"]
    variables = {"ROBOSTREAM_CACHE": str(cache), "ROBOSTREAM_CACHE_LIMIT": limit}
    done = subprocess.run(
        command, env=os.environ | variables, check=True, stdout=subprocess.PIPE, text=True
    )
    shutil.rmtree(cache, ignore_errors=True)
    rates: list[float] = json.loads(done.stdout)
    return rates
