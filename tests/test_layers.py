# SPDX-License-Identifier: Apache-2.0
"""The tree shows the data flow, and the code keeps to it."""

from __future__ import annotations

import ast
import importlib
import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import robostream

SRC = Path(__file__).parents[1] / "src" / "robostream"
# Stages of one file: `dataset` joins the reader (assemble) and the writer (write);
# `lerobot_mixture` and `lerobot_train` are for LeRobot's command.
FLOW = [
    "lazy",
    "errors",
    "arguments",
    "byte_sizes",
    "progress",
    "config",
    "storage",
    "meta",
    "plan",
    "decode",
    "assemble",
    "device",
    "batches",
    "workers",
    "loader",
    "write",
    "dataset",
    "lerobot_mixture",
    "lerobot_train",
    "tools",
    "testing",
    "bench",
    "cli",
]


def modules_of(stage: str) -> list[Path]:
    folder = SRC / stage
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [SRC / f"{stage}.py"]


def is_module(name: str) -> bool:
    path = SRC.parent.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").exists()


def exported(package: str) -> list[str]:
    return getattr(importlib.import_module(package), "__all__", [])


def folder_of(module: str) -> str:
    is_folder = SRC.parent.joinpath(*module.split(".")).is_dir()
    return module if is_folder else module.rpartition(".")[0]


def module_behind(package: str, name: str) -> str:
    """The module that `from package import name` reaches for."""
    whole = f"{package}.{name}"
    if package == "robostream" and not is_module(whole):
        # A public name of the package is loaded from the stage that defines it.
        home = getattr(getattr(robostream, name), "__module__", package)
        return ".".join(home.split(".")[:2])
    # A file is not what its folder exports, unless its name is exported for something else.
    return whole if is_module(whole) and name not in exported(package) else package


def imported_modules(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import in line {node.lineno}"
            if (node.module or "").split(".")[0] == "robostream":
                found.update(module_behind(node.module or "", alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return {name for name in found if name.startswith("robostream.")}


def named_modules(path: Path) -> set[str]:
    """Modules that a text names: for importlib, for `python -m`, or code for `python -c`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            whole = re.fullmatch(r"(robostream(?:\.\w+)+)\.?", node.value)  # "." before a {name}
            code = re.findall(r"; (?:from|import) (robostream(?:\.\w+)+)", node.value)
            found.update(code if whole is None else [whole[1]])
        elif isinstance(node, ast.Name):
            assert node.id not in ("__import__", "exec", "eval"), f"{path}: line {node.lineno}"
    return found


def deep_imports(path: Path, stage: str) -> set[str]:
    return {
        f"{path.relative_to(SRC) if SRC in path.parents else path.name} imports {name}"
        for name in imported_modules(path) | named_modules(path)
        if name.count(".") > 1 and name.split(".")[1] != stage
    }


def test_every_module_belongs_to_a_stage() -> None:
    """Nothing lies beside the stages but the public face of the package, and its command."""
    names = {path.stem if path.is_file() else path.name for path in SRC.iterdir()}

    assert names - {"__pycache__", "__init__", "__main__", "py", "README"} == set(FLOW)


@pytest.mark.parametrize("stage", FLOW)
def test_imports_follow_the_data_flow(stage: str) -> None:
    """A stage imports only itself and stages before it."""
    allowed = set(FLOW[: FLOW.index(stage) + 1])
    wrong = {
        f"{path.relative_to(SRC)} imports {name}"
        for path in modules_of(stage)
        for name in imported_modules(path) | named_modules(path)
        if name.split(".")[1] not in allowed
    }

    assert wrong == set()


@pytest.mark.parametrize("stage", FLOW)
def test_other_stages_are_entered_through_their_front_door(stage: str) -> None:
    """What a stage offers others is what its __init__ exports."""
    wrong = set().union(*(deep_imports(path, stage) for path in modules_of(stage)))

    assert wrong == set()


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import robostream.loader", "robostream.loader"),
        ("from robostream import loader", "robostream.loader"),
        ("from robostream import StreamingDataLoader", "robostream.loader"),
        ("from robostream import LeRobotDataset", "robostream.dataset"),
        ("from robostream import loader as stage, config", "robostream.loader"),
        ("from robostream.bench import results", "robostream.bench.results"),
        ("from robostream.bench import format_table", "robostream.bench"),
        ("from robostream.bench.results import format_table", "robostream.bench.results"),
        ("from robostream.plan import permute", "robostream.plan"),
        ("importlib.import_module('robostream.loader')", "robostream.loader"),
        ("importlib.import_module(f'robostream.bench.{name}')", "robostream.bench"),
        ("run([sys.executable, '-m', 'robostream.bench.processes'])", "robostream.bench.processes"),
        ("boot = 'import sys; from robostream.workers import main'", "robostream.workers"),
        ("if TYPE_CHECKING: from robostream.loader import MapReader", "robostream.loader"),
    ],
)
def test_no_way_of_importing_is_overlooked(line: str, module: str, tmp_path: Path) -> None:
    """The gates above see a stage however it is imported, and a file behind a front door."""
    path = tmp_path / "some_file.py"
    path.write_text(f"def late():\n    {line}\n")

    assert module in imported_modules(path) | named_modules(path)
    assert bool(deep_imports(path, "cli")) == (module.count(".") > 1)


@pytest.mark.parametrize("stage", FLOW)
def test_files_of_a_stage_do_not_import_each_other_in_circles(stage: str) -> None:
    """Every file can be read after those it needs; so can every folder inside a stage."""
    files: dict[str, set[str]] = {}
    folders: dict[str, set[str]] = {}
    for path in modules_of(stage):
        parts = path.relative_to(SRC.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        files[name] = {other for other in imported_modules(path) if other.split(".")[1] == stage}
        if parts[-1] != "__init__":  # which imports from its folder, and from those inside it
            inside = {folder_of(other) for other in files[name]}
            folders.setdefault(folder_of(name), set()).update(inside - {folder_of(name)})

    TopologicalSorter(files).prepare()
    TopologicalSorter(folders).prepare()
