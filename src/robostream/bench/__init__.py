# SPDX-License-Identifier: Apache-2.0
"""Measurements that print ratios against a reference.

table.py         plain text tables, and what a result says about its machine
datasets.py      synthetic datasets, made once and used again
memory.py        the memory of this process and those it started
floor.py         the floor: decoding the same videos with nothing else
floor_run.py     the process it starts for each measurement
peer.py          the peer: a map-style dataset as most are written
node.py          `bench node`: a full node, simulated: how evenly its workers are busy
decode.py        `bench decode`: random access on one thread
loader.py        `bench loader`: the whole loader
loader_cases.py  its datasets, samples and goals
loader_run.py    the process it starts for each measurement
meta.py          `bench meta`: loading the metadata
meta_folder.py   the meta/ folder of an imagined dataset
meta_load.py     the process it starts for each measurement
plan.py          `bench plan`: start-up, memory, positions and seeks
resume.py        how long a resume takes, at the start and near the end of an epoch
rows.py          `bench rows`: rows whose groups are not episodes
rows_run.py      the process it starts for each measurement
shuffle.py       `bench shuffle`: shuffle quality by pool size
"""

import importlib
from typing import Any

from robostream.bench.floor import decode_floor
from robostream.bench.table import format_table, machine

__all__ = ["CASES", "decode_floor", "format_table", "load_case", "machine"]

CASES: tuple[str, ...] = ("meta", "plan", "shuffle", "node", "rows", "decode", "loader")


def load_case(name: str) -> Any:
    """Return the module of a case: it has TITLE and run(quick: bool) -> JSON-able dict.

    `run` prints its own table.
    """
    return importlib.import_module(f"robostream.bench.{name}")
