# SPDX-License-Identifier: Apache-2.0
"""Small files, short functions, a licence line and a docstring everywhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

REPO = Path(__file__).parents[1]
SOURCES = sorted(path for top in ("src", "examples") for path in (REPO / top).rglob("*.py"))
# The package itself is mapped in its README.
FOLDERS = sorted({p.parent for p in SOURCES if p.name == "__init__.py"} - {REPO / "src/robostream"})
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 40


def function_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function's body without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(REPO)))
def test_files_and_functions_stay_small(path: Path) -> None:
    """A file has at most 400 lines, a function at most 40 (style guide)."""
    text = path.read_text()
    functions = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    long = {f.name: n for f in functions if (n := function_lines(f)) > MAX_FUNCTION_LINES}

    assert len(text.splitlines()) <= MAX_FILE_LINES
    assert long == {}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(REPO)))
def test_files_say_their_licence_and_their_job(path: Path) -> None:
    """The first line is the licence, then comes a docstring."""
    text = path.read_text()

    assert text.startswith("# SPDX-License-Identifier: Apache-2.0\n")
    assert ast.get_docstring(ast.parse(text))


def test_files_speak_of_robostream_alone() -> None:
    """No machine's paths in what we ship."""
    marks = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/")
    files = [
        p for d in ("src", "examples", "tests", "docs", "scripts") for p in (REPO / d).rglob("*.*")
    ]
    texts = [p for p in files if p.suffix in (".py", ".md", ".sh")]
    found = [str(p) for p in texts if any(mark in p.read_text() for mark in marks)]

    assert found == []


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: str(p.relative_to(REPO)))
def test_folders_map_their_files(folder: Path) -> None:
    """The docstring of a package has one line for each of its files and folders."""
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or ""
    mapped = re.findall(r"^(\w+\.py|\w+/) +\S", docstring, re.MULTILINE)
    there = {f.name for f in folder.glob("*.py")} | {
        f"{f.parent.name}/" for f in folder.glob("*/__init__.py")
    }

    assert len(mapped) == len(set(mapped))
    assert set(mapped) == there - {"__init__.py"}
