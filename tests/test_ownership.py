# SPDX-License-Identifier: Apache-2.0
"""An object's attributes belong to its class: nobody else writes them or reads private ones."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "robostream"
SOURCES = sorted(SRC.rglob("*.py"))
# Objects of other libraries are configured by assigning to their attributes.
CONFIGURED = {
    "PyAV's contexts and streams": "extradata width height pix_fmt time_base thread_count options",
    "PyAV's frames and packets": "pts dts duration stream pict_type",
    "colours of both": "colorspace color_range color_primaries color_trc",
    "functions of ctypes": "argtypes restype",
    "exceptions": "__cause__ __context__ __traceback__ args",
}
# A meter is a record of counts that whoever does the work adds to.
COUNTED_BY = ("meter", "self._meter")
ASSIGNABLE = set(" ".join(CONFIGURED.values()).split())
# What Python itself marks as private and documents all the same.
DOCUMENTED = {"_exit", "_replace", "_asdict", "_fields", "_fields_", "_ArgumentGroup"}


def own_names(function: ast.AST) -> set[str]:
    """Names that stand for the object or class a method belongs to, or one that it makes itself."""
    names = {"self", "cls"}
    for node in ast.walk(function):
        # `made = object.__new__(cls)` and `copied = cls.__new__(cls)` make an object of the class.
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Attribute) and called.attr == "__new__":
                names.update(t.id for t in node.targets if isinstance(t, ast.Name))
    return names


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Yield the attributes that a statement assigns to or deletes."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor):
        targets = [node.target]
    elif isinstance(node, ast.With | ast.AsyncWith):
        targets = [item.optional_vars for item in node.items if item.optional_vars]
    for target in targets:
        for inner in [target, *getattr(target, "elts", [])]:
            if isinstance(inner, ast.Attribute):
                yield inner


def foreign_assignments(path: Path) -> list[str]:
    """Places where a module assigns to an attribute of something other than its own object."""
    tree = ast.parse(path.read_text())
    own = own_names(tree)
    return [
        f"{path.relative_to(SRC)}:{target.lineno} assigns to {ast.unparse(target)}"
        for node in ast.walk(tree)
        for target in assigned(node)
        if not (isinstance(target.value, ast.Name) and target.value.id in own)
        if target.attr not in ASSIGNABLE and ast.unparse(target.value) not in COUNTED_BY
    ]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def foreign_private_members(path: Path) -> list[str]:
    """Places where a module uses a private member that none of its own classes defines."""
    tree = ast.parse(path.read_text())
    objects = own_names(tree)
    own = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in objects
    } | {
        name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for item in node.body
        for name in defined_names(item)
    }
    return [
        f"{path.relative_to(SRC)}:{node.lineno} uses {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own
        if node.attr not in DOCUMENTED
    ]


def defined_names(item: ast.stmt) -> list[str]:
    if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [item.name]
    if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
        return [item.target.id]
    if isinstance(item, ast.Assign):
        return [target.id for target in item.targets if isinstance(target, ast.Name)]
    return []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_assigns_only_to_its_own_objects(path: Path) -> None:
    """An object changes through its methods, so one class says all that can happen to it."""
    assert foreign_assignments(path) == []


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(SRC)))
def test_a_module_uses_no_private_members_of_others(path: Path) -> None:
    """What other modules need of a class is public, and documented."""
    assert foreign_private_members(path) == []


def test_a_class_name_exists_once() -> None:
    """A name has one meaning; a private class does not take a public one's name either."""
    nodes = (node for path in SOURCES for node in ast.walk(ast.parse(path.read_text())))
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))

    assert [name for name, count in names.items() if count > 1] == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("clip.layout = 1", 1),
        ("clip.left[0] -= 1", 0),
        ("a, clip.layout = 1, 2", 1),
        ("self.clip.layout = 1", 1),
        ("clip.count += 1", 1),
        ("del clip.layout", 1),
        ("for clip.layout in (): ...", 1),
        ("self.layout = 1", 0),
        ("made = object.__new__(Clip); made.layout = 1", 0),
    ],
)
def test_no_way_of_assigning_is_overlooked(
    text: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate sees an assignment to an attribute however it is written."""
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    path = tmp_path / "some_file.py"
    path.write_text(text)

    assert len(foreign_assignments(path)) == found


@pytest.mark.parametrize(("text", "found"), [("clip._left", 1), ("self._left", 0), ("a.b", 0)])
def test_private_members_are_noticed(
    text: str, found: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate sees the private member of another object."""
    monkeypatch.setattr(f"{__name__}.SRC", tmp_path)
    path = tmp_path / "some_file.py"
    path.write_text(text)

    assert len(foreign_private_members(path)) == found
