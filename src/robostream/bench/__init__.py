# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: each prints a table with ratios to a reference and returns its figures as JSON.

results.py     figures on disk, medians over rounds, the machine
tables.py      tables as text and as Markdown, and the documents of a checkout that show them
charts.py      charts, drawn with matplotlib: those of a report, and what others share
case.py        BenchCase and BenchData: what is measured, on which synthetic dataset
processes.py   run a measurement in a process of its own; the memory of processes
measure.py     the measuring loop: take batches, note their arrivals, derive rates
floor.py       the decode floor: decoding the same images with nothing else to do
loaders.py     the loaders to compare: robostream, other libraries, plain datasets
meta.py        `bench meta`: loading the metadata
plan.py        `bench plan`, `bench shuffle`, `bench node`: what follows from the plan alone
rows.py        `bench rows`: rows whose row groups are not episodes; the time of a resume
decode.py      `bench decode`: random access on one thread
loader.py      `bench loader`: the whole loader
gpu.py         `bench gpu`: images into the memory of a GPU
remote.py      `bench remote`: the whole loader behind a network
versions.py    `bench versions`: v2.1 beside v3.0 behind a network
stream.py      `bench stream`: one setting, from a folder, the Hub or a bucket
report.py      `bench report`: results of `bench stream` as a table, a CSV and a page
suite.py       `bench suite`: everything small, and the figures of docs/benchmarks.md
peers.py       `bench peers`: other loaders on the same files
delivery.py    what a loader delivers: counts, order, every image
"""

import importlib
from typing import Any

from robostream.bench.floor import decode_floor
from robostream.bench.measure import consume, limit_time, run_rounds
from robostream.bench.results import Figures, ensure_writable, machine, write_json
from robostream.bench.tables import format_table

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

_FUNCTIONS = {"shuffle": ("plan", "run_shuffle"), "node": ("plan", "run_node")}


def run_benchmark(name: str, **options: Any) -> Figures:
    """Measure, print the tables, and return the figures with those of the machine."""
    module, function = _FUNCTIONS.get(name, (name, "run"))
    figures: Figures = getattr(load_module(module), function)(**options)
    return {"machine": machine()} | figures


def load_module(name: str) -> Any:
    """Return a module of this folder.

    Some have a `PUBLICATION`, which writes figures to a checkout and refreshes its docs.
    """
    return importlib.import_module(f"robostream.bench.{name}")
