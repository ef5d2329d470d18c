# SPDX-License-Identifier: Apache-2.0
"""The plan is arithmetic: nothing it imports could make it anything else."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robostream.plan

FOLDER = Path(robostream.plan.__file__).parent
ALLOWED = {
    "__future__",
    "collections.abc",
    "dataclasses",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "itertools",
    "math",
    "numpy",
    "numpy.typing",
    "robostream.errors",
    "robostream.lazy",
    "typing",
}
HEAVY = ["torch", "av", "pyarrow", "fsspec", "huggingface_hub", "PIL", "tqdm", "socket", "asyncio"]


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_plan_imports_arithmetic_only(path: Path) -> None:
    """No torch, no I/O, no clock, no random module: numpy and a few words of the language."""
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        elif isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
    outside = {name for name in imported if name and not name.startswith("robostream.plan.")}

    assert outside <= ALLOWED


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_the_plan_opens_nothing_and_draws_nothing(path: Path) -> None:
    """No built-in that reads or writes, nothing of numpy.random or numpy's file functions."""
    names = {
        node.id if isinstance(node, ast.Name) else node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }

    assert names.isdisjoint({"open", "print", "input", "random", "load", "save", "fromfile"})


def test_importing_the_plan_brings_nothing_heavy() -> None:
    """In a fresh interpreter, the plan's import leaves torch and all I/O libraries unloaded."""
    code = f"import sys, robostream.plan; print([m for m in {HEAVY} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "[]"
