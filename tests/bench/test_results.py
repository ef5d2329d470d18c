# SPDX-License-Identifier: Apache-2.0
"""Tests of result files, medians, tables as text, memory figures and floors."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.bench.processes import decode_floor, sample_memory
from robostream.bench.results import (
    format_table,
    machine,
    medians,
    ratios,
    read_figures,
    save_run,
)
from robostream.errors import RobostreamError
from tests.fixture_datasets import FIXTURES

HEADER = ["name", "frames", "task"]
ROWS = st.lists(
    st.tuples(st.text("abc", max_size=60), st.integers(0, 10**6), st.text("xyz", max_size=90)),
    min_size=1,
    max_size=5,
)


def test_runs_of_the_same_second_have_names_of_their_own(tmp_path: Path) -> None:
    """No run overwrites another, and each CSV row equals its JSON."""
    paths = [save_run(tmp_path, "hub_single", {"run": n, "more": {"a": [n]}}) for n in range(5)]

    assert [read_figures(path)["run"] for path in paths] == list(range(5))
    for path in paths:
        (row,) = csv.DictReader(path.with_suffix(".csv").read_text().splitlines())
        assert json.loads(row["more"]) == read_figures(path)["more"]


@pytest.mark.parametrize("content", ["", "[1]", "{"])
def test_a_file_that_is_no_result_is_named(tmp_path: Path, content: str) -> None:
    """The error names the file and what was wanted."""
    (tmp_path / "bad.json").write_text(content)
    with pytest.raises(RobostreamError, match=r"bad\.json: want"):
        read_figures(tmp_path / "bad.json")


def test_medians_are_those_of_numbers_all_rounds_have() -> None:
    """Texts and fields that a round lacks are left out; ratios are taken within a round."""
    rounds = [{"a": 1, "b": "x", "c": True}, {"a": 9, "d": 4}, {"a": 2, "d": 5}]

    assert medians(rounds) == {"a": 2}
    assert ratios([2, 9, 8], [1, 3, 8]) == [2, 3, 1]


def test_the_sampler_counts_memory_of_children() -> None:
    """A child with 200 MB appears in RSS and PSS, and disappears with its end."""
    code = "import time; held = b'x' * 200_000_000; print('ready', flush=True); time.sleep(60)"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.readline()
    with sample_memory() as with_child:
        pass
    child.kill()
    child.communicate()
    with sample_memory() as without:
        pass

    # Other children, and memory that this process frees in between, are far smaller.
    assert with_child.rss[-1][1] - without.rss[-1][1] > 150e6
    assert with_child.pss[-1][1] - without.pss[-1][1] > 150e6
    assert np.all(np.diff([at for at, _ in with_child.rss]) > 0)


def test_floors_stop_in_time_also_with_fewer_files_than_processes() -> None:
    """Videos and images in Parquet are decoded repeatedly until the time is up."""
    video = str(next((FIXTURES / "av1_multifile").glob("videos/*/*/*.mp4")))
    images = str(next((FIXTURES / "images").glob("data/*/*.parquet")))

    assert decode_floor([video], 2, at_most_s=0.2) > 0
    assert decode_floor([images], 2, at_most_s=0.2) > 0


def test_the_machine_is_described() -> None:
    """It has versions, the processor and, in a checkout, the commit."""
    here = machine()

    assert here["cpu"]
    assert "torch" in here["versions"]  # type: ignore[operator]
    json.dumps(here)


@given(rows=ROWS, columns=st.integers(40, 200))
def test_a_table_fits_the_terminal(rows: list[tuple[str, int, str]], columns: int) -> None:
    """Long texts wrap, so nothing of them is lost; numbers stay whole."""
    lines = format_table(HEADER, rows, columns=columns).splitlines()
    name, number, _ = map(len, lines[1].split("  "))
    cells: list[list[str]] = []
    for line in lines[2:]:
        parts = line[:name], line[name + 2 : name + 2 + number], line[name + 4 + number :]
        if parts[1].strip():
            cells.append(["", "", ""])
        cells[-1] = [cell + part.strip() for cell, part in zip(cells[-1], parts, strict=True)]

    assert max(map(len, lines)) <= columns
    assert cells == [[row[0], f"{row[1]:,}", row[2]] for row in rows]


def test_names_wrap_between_their_parts() -> None:
    """So that cameras can be told apart on a narrow terminal; other words stay whole."""
    rows = [("observation.images.front", "28.8 MiB in a pool"), ("action", "0")]

    assert format_table(["key", "memory"], rows, columns=24).splitlines() == [
        "key          memory",
        "-----------  -----------",
        "observation  28.8 MiB in",
        ".images      a pool",
        ".front",
        "action       0",
    ]


@given(rows=ROWS)
def test_without_a_terminal_nothing_is_cut(rows: list[tuple[str, int, str]]) -> None:
    """Scripts and files get whole texts."""
    table = format_table(HEADER, rows)

    assert all(row[0] in table and row[2] in table for row in rows)
