# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each returns its figures, and tables with ratios to a reference.

results.py     figures on disk, medians, tables, the machine, and the documents that show them
charts.py      charts, drawn with matplotlib: those of a report, and what others share
measure.py     BenchCase: what is measured, on which synthetic dataset; and the measuring loop
processes.py   measurements in processes of their own, their memory, and the decode floor
loaders.py     the loaders to compare, and what each delivers: counts, order, every image
meta.py        `bench meta`, `bench rows`: loading metadata, reading rows, the time of a resume
plan.py        `bench plan`, `bench shuffle`, `bench node`: what follows from the plan alone
decode.py      `bench decode`: random access on one thread
loader.py      `bench loader`: the whole loader
gpu.py         `bench gpu`: images into the memory of a GPU
remote.py      `bench remote`, `bench versions`: behind a network, v3.0 alone and beside v2.1
stream.py      `bench stream`: one setting, from a folder, the Hub or a bucket
report.py      `bench report`: results of `bench stream` as a table, a CSV and a page
suite.py       `bench suite`: everything small, and the figures of docs/benchmarks.md
peers.py       `bench peers`: other loaders on the same files
"""

import importlib
from typing import Any

from robostream.bench.measure import consume, limit_time, run_rounds
from robostream.bench.processes import decode_floor
from robostream.bench.results import (
    Measured,
    ensure_writable,
    format_table,
    machine,
    show_progress,
    write_json,
)

BENCHMARKS = {
    "meta": "seconds and memory to load the metadata of a dataset",
    "plan": "the order of an epoch: start-up, memory, positions and seeks",
    "shuffle": "how well an order mixes episodes (made-up episodes, batch 64)",
    "node": "how busy the workers of a full node are, simulated",
    "rows": "samples/s of rows alone, by their row groups",
    "decode": "images/s of random access on one thread, against decoding alone",
    "loader": "images/s of the loader, against decoding alone and a plain map-style loader",
    "gpu": "images/s into the memory of a GPU, by each way there; needs a GPU",
    "remote": "first batch, rate, bytes, requests and waits behind 20 ms and 200 Mbit/s",
    "versions": "a v2.1 dataset of 2,000 episodes beside the same in v3.0, behind 20 ms",
}

COMMANDS = {
    "stream": "one setting of the loader: dataloading alone, from a folder, the Hub or a bucket",
    "report": "results of `bench stream` as a table, a CSV and a page with charts",
    "peers": "robostream beside other loaders on the same files, in one interleaved run",
    "suite": "everything small, in minutes; refreshes the figures of a checkout's docs",
}

# Benchmarks that share the module of another; theirs are its functions run_NAME.
_SHARED = {"shuffle": "plan", "node": "plan", "rows": "meta", "versions": "remote"}


def run_benchmark(name: str, **options: Any) -> Measured:
    """Measure; return the figures with those of the machine, and the tables. Prints progress."""
    show_progress(f"measuring {name}")
    run = getattr(load_module(name), f"run_{name}" if name in _SHARED else "run")
    figures, tables = run(**options)
    return {"machine": machine()} | figures, tables


def load_module(name: str) -> Any:
    """Return the module of a benchmark.

    Some have a `PUBLICATION`, which writes figures to a checkout and refreshes its docs.
    """
    return importlib.import_module(f"robostream.bench.{_SHARED.get(name, name)}")
