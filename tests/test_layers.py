# SPDX-License-Identifier: Apache-2.0
"""The tree shows the data flow, and the code keeps to it."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "robostream"
# `dataset` is one file: the facade that joins the reader (assemble) and the writer (write).
FLOW = [
    "errors",
    "config",
    "meta",
    "plan",
    "fetch",
    "decode",
    "assemble",
    "stream",
    "crew",
    "loader",
    "write",
    "dataset",
    "tools",
    "bench",
    "cli",
]


def modules_of(stage: str) -> list[Path]:
    folder = SRC / stage
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SRC / f"{stage}.py"]


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith("robostream.")}


def test_every_module_belongs_to_a_stage() -> None:
    """Nothing lies beside the stages but the public face of the package."""
    names = {path.stem if path.is_file() else path.name for path in SRC.iterdir()}

    assert names - {"__pycache__", "__init__", "py", "README"} == set(FLOW)


@pytest.mark.parametrize("stage", FLOW)
def test_imports_follow_the_data_flow(stage: str) -> None:
    """A stage imports only itself and stages before it."""
    allowed = set(FLOW[: FLOW.index(stage) + 1])
    wrong = {
        f"{path.relative_to(SRC)} imports {name}"
        for path in modules_of(stage)
        for name in imported_modules(path)
        if name.split(".")[1] not in allowed
    }

    assert wrong == set()


@pytest.mark.parametrize("stage", FLOW)
def test_other_stages_are_entered_through_their_front_door(stage: str) -> None:
    """What a stage offers others is what its __init__ exports."""
    wrong = {
        f"{path.relative_to(SRC)} imports {name}"
        for path in modules_of(stage)
        for name in imported_modules(path)
        if name.count(".") > 1 and name.split(".")[1] != stage
    }

    assert wrong == set()


@pytest.mark.parametrize("stage", FLOW)
def test_files_of_a_stage_do_not_import_each_other_in_circles(stage: str) -> None:
    """Every file can be read after those it needs; so can every folder inside a stage."""
    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for path in modules_of(stage):
        if path.name == "__init__.py":
            continue
        name = ".".join(("robostream", *path.relative_to(SRC).with_suffix("").parts))
        own = {other for other in imported_modules(path) if other.split(".")[1] == stage}
        files[name] = own
        inside = {".".join(n.split(".")[2:-1]) for n in own}
        folder = ".".join(name.split(".")[2:-1])
        folders.setdefault(folder, set()).update(inside - {folder})

    TopologicalSorter(files).prepare()
    TopologicalSorter(folders).prepare()
