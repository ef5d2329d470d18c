# SPDX-License-Identifier: Apache-2.0
"""Synthetic datasets for benchmarks, made once and used again."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq

from robostream import config
from robostream.loader import share_of_cores
from robostream.tools import SynthSpec, make_dataset


def bench_dataset(name: str, spec: SynthSpec) -> Path:
    """Return the folder of a dataset, made now if it is not there yet.

    It lies in `$ROBOSTREAM_CACHE/bench` under its name and a digest of what it is made of, and may
    be deleted at any time.
    """
    made_of = dataclasses.asdict(spec)
    if spec.distinct is None:  # so that datasets from before there was this option are used again
        del made_of["distinct"]
    text = json.dumps(made_of, sort_keys=True, default=str)
    folder = config.bench_home() / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    return _once(folder, lambda aside: make_dataset(aside, spec, jobs=share_of_cores(1)))


def one_row_group(root: Path) -> Path:
    """Return a dataset with the same videos whose Parquet files have one row group each.

    Tools that rewrite a data file in one go leave it like that.
    """

    def make(aside: Path) -> None:
        shutil.copytree(root, aside, copy_function=os.link)
        for path in aside.glob("data/*/*.parquet"):
            table = pq.read_table(path)
            path.unlink()  # a link: writing to it would change the other dataset
            pq.write_table(table, path, row_group_size=table.num_rows)

    return _once(root.with_name(f"{root.name}-one-row-group"), make)


def _once(folder: Path, make: Callable[[Path], object]) -> Path:
    if not folder.is_dir():
        aside = folder.with_name(f"{folder.name}.{os.getpid()}")
        shutil.rmtree(aside, ignore_errors=True)
        aside.parent.mkdir(parents=True, exist_ok=True)
        print(f"making {folder.name}, which later runs use again", flush=True)
        make(aside)
        aside.rename(folder)
    return folder
