# SPDX-License-Identifier: Apache-2.0
"""Tests of `robostream bench`: figures are on disk before anything is printed."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.bench import BENCHMARKS, load_module
from robostream.bench.results import read_figures


def test_a_closed_pipe_loses_no_figures(tmp_path: Path) -> None:
    """The JSON of a benchmark is written even if nobody reads its tables and its progress."""
    command = [sys.executable, "-m", "robostream", "bench", "shuffle", "--quick"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout is not None
    process.stdout.close()
    process.wait(timeout=120)

    assert len(read_figures(tmp_path / "shuffle.json")["results"]) > 1


@pytest.mark.parametrize("name", [*BENCHMARKS, "peers", "suite"])
def test_benchmarks_return_their_tables(name: str) -> None:
    """None prints: the command writes the figures first, then it prints the tables."""
    nodes = ast.walk(ast.parse(inspect.getsource(load_module(name))))

    assert not [one for one in nodes if isinstance(one, ast.Name) and one.id == "print"]
