# SPDX-License-Identifier: Apache-2.0
"""Measurements that print ratios against a reference.

table.py         plain text tables
environment.py   what a figure was measured on
choose.py        which cases a command was asked to measure
results.py       figures on disk and over rounds
datasets.py      synthetic datasets, made once and used again
memory.py        the memory of this process and those it started
stretches.py     the rate in each stretch of a run
floor.py         the floor: decoding the same videos with nothing else
floor_run.py     the process it starts for each measurement
node.py          `bench node`: a full node, simulated: how evenly its workers are busy
decode.py        `bench decode`: random access on one thread
loader.py        `bench loader`: the whole loader
loader_cases.py  its datasets, samples and goals
loader_run.py    the process it starts for each measurement
loader_docs.py   its tables in the docs
gpu/             `bench gpu`: pictures into the memory of a GPU
remote.py        `bench remote`: the whole loader behind a network
remote_need.py   the bytes an epoch needs, and what was asked of a server for it
remote_run.py    the process it starts for each measurement
meta.py          `bench meta`: loading the metadata
meta_folder.py   the meta/ folder of an imagined dataset
meta_load.py     the process it starts for each measurement
plan.py          `bench plan`: start-up, memory, positions and seeks
resume.py        how long a resume takes, at the start and near the end of an epoch
rows.py          `bench rows`: rows whose groups are not episodes
rows_run.py      the process it starts for each measurement
shuffle.py       `bench shuffle`: shuffle quality by pool size
stream/          `bench stream`: one setting of the loader, from a folder, the Hub or a bucket
report/          `bench report`: its results as a table, a CSV and a page
plain/           a map-style dataset as most are written, to compare with
peers/           `bench peers`: other loaders on the same files
suite/           `bench suite`: everything small, and the README's figures from it
"""

import importlib
from typing import Any

from robostream.bench.environment import machine
from robostream.bench.floor import decode_floor
from robostream.bench.results import ensure_writable, write_json
from robostream.bench.table import format_table

__all__ = [
    "CASES",
    "PROGRAMS",
    "decode_floor",
    "ensure_writable",
    "format_table",
    "load_case",
    "load_program",
    "machine",
    "write_json",
]

CASES = {
    "meta": "seconds and memory to load the metadata of a dataset",
    "plan": "the order of an epoch as arithmetic",
    "shuffle": "how well an order mixes episodes (made-up episodes, batch 64)",
    "node": "the share of their time that the workers of a full node use, simulated",
    "rows": "samples/s of rows alone, by how the rows are grouped",
    "decode": "images/s of random access on one thread, against decoding alone",
    "loader": "images/s of the loader, against decoding alone and a plain map-style loader",
    "gpu": "images/s into the memory of a GPU, by each way there; for machines that have one",
    "remote": "first batch, rate, bytes, requests and waiting behind 20 ms and 200 Mbit/s",
}

PROGRAMS = {
    "stream": "one setting of the loader: dataloading alone, from a folder, the Hub or a bucket",
    "report": "results of `bench stream` as a table, a CSV and one page to look at",
    "peers": "robostream beside other loaders on the same files, in one interleaved run",
    "suite": "everything small, in minutes; refreshes the figures of a checkout's README",
}


def load_case(name: str) -> Any:
    """Return the module of a case: its run(quick: bool) prints a table and returns the figures.

    Some have publish(repo, figures), which keeps them in a checkout and refreshes its docs.
    """
    return importlib.import_module(f"robostream.bench.{name}")


def load_program(name: str) -> Any:
    """Return the module of a program: it has configure(parser) and run(args) -> exit code."""
    return importlib.import_module(f"robostream.bench.{name}.command")
