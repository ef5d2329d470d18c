# SPDX-License-Identifier: Apache-2.0
"""Print figures of the source tree. Usage: `python scripts/house.py [FOLDER]`.

For each stage: its files, lines and longest file, and the stages it imports. For the whole tree:
lengths of files and functions (without docstrings), files with little code, repeated class names,
rows of the glossary, parameters of the stream, public names of the plan. `scripts/walk.py` prints
the calls of one sample.

FOLDER is another tree, such as that of an earlier commit, to compare with:

    git archive COMMIT src docs | tar -x -C BEFORE
    python scripts/house.py BEFORE/src/robostream
"""

from __future__ import annotations

import ast
import statistics
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parents[1] / "src" / "robostream"
SHORT_FILE_LINES = 40
# The stages between decoded frames and the user's loop, under their present and earlier names.
LOADING = ("batches", "workers", "device", "loader", "stream", "crew")


class Function(NamedTuple):
    """A function and its number of lines."""

    lines: int
    name: str


def main(root: Path) -> None:
    """Print the tables of a source tree."""
    files = sorted(root.rglob("*.py"))
    if not files:
        sys.exit(f"{root}: want a folder with Python files, found none")
    trees = {path: ast.parse(path.read_text()) for path in files}
    stages = sorted({stage_of(path, root) for path in files})
    imports = {stage: Counter[str]() for stage in stages}
    for path, tree in trees.items():
        imports[stage_of(path, root)].update(imported_stages(tree, set(stages)))
    lines = {path: line_count(path) for path in files}
    print(f"{'stage':12}{'files':>6}{'lines':>7}{'longest':>9}  imports (from how many files)")
    for stage in stages:
        lengths = [lines[path] for path in files if stage_of(path, root) == stage]
        others = sorted((name, n) for name, n in imports[stage].items() if name != stage)
        listed = ", ".join(f"{name} {n}" for name, n in others)
        print(f"{stage:12}{len(lengths):6}{sum(lengths):7}{max(lengths):9}  {listed or '-'}")
    loading = [lines[path] for path in files if stage_of(path, root) in LOADING]
    for name, lengths in (("loading", loading), ("all", list(lines.values()))):
        note = f"  {' + '.join(n for n in LOADING if n in stages)}" if name == "loading" else ""
        print(f"{name:12}{len(lengths):6}{sum(lengths):7}{max(lengths, default=0):9}{note}")
    print(f"\nlines of a file      {describe(list(lines.values()))}")
    functions = sorted(f for path, tree in trees.items() for f in functions_of(path, tree, root))
    print(f"lines of a function  {describe([function.lines for function in functions])}")
    print(f"longest              {functions[-1].name}")
    short = [path for path in files if code_lines(trees[path]) < SHORT_FILE_LINES]
    print(f"\nfiles with fewer than {SHORT_FILE_LINES} lines of code  {len(short)}")
    twice = repeated_classes(trees.values())
    print(f"class names that exist more than once   {len(twice)}  {', '.join(twice)}")
    print(f"rows of the glossary                    {glossary_rows(root)}")
    parameters = stream_parameters(trees.values())
    unused = ignored_parameters(trees.values()) & parameters
    print(f"parameters of StreamingLeRobotDataset   {len(parameters)}, {len(unused)} of no effect")
    plan = public_names(trees[root / "plan/__init__.py"])
    print(f"public names of robostream.plan         {plan}")


def stage_of(path: Path, root: Path) -> str:
    """Return the folder below the root that a file lies in, or its name."""
    return path.relative_to(root).with_suffix("").parts[0]


def line_count(path: Path) -> int:
    """Return the number of lines of a file."""
    return len(path.read_text().splitlines())


def imported_stages(tree: ast.Module, stages: set[str]) -> set[str]:
    """Return the stages that a file imports, at any level of it."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "robostream":
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            found.update((node.module or "").split(".")[1:2])
        elif isinstance(node, ast.Import):
            found.update(part for a in node.names for part in a.name.split(".")[1:2])
    return found & stages


def functions_of(path: Path, tree: ast.Module, root: Path) -> list[Function]:
    """Return the functions and methods of a file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0
            found.append(Function(lines, f"{node.name} in {path.relative_to(root)}"))
    return found


def code_lines(tree: ast.Module) -> int:
    """Return the number of lines with code: not blank, no comment, no docstring."""
    texts = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias)
        for line in (node.lineno, node.end_lineno or node.lineno)
    }
    return len(lines - texts)


def repeated_classes(trees: Iterable[ast.Module]) -> list[str]:
    """Return the names that more than one class has."""
    nodes = (node for tree in trees for node in ast.walk(tree))
    names = Counter(node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in names.items() if count > 1)


def glossary_rows(root: Path) -> int:
    """Return the number of words in the glossary of docs/design.md."""
    page = root.parents[1] / "docs" / "design.md"
    if not page.exists():
        return 0
    _, _, glossary = page.read_text().partition("\n## Words\n")
    rows = [line for line in glossary.splitlines() if line.startswith("| ")]
    return len([row for row in rows if not row.startswith(("| **", "| word |"))])


def stream_parameters(trees: Iterable[ast.Module]) -> set[str]:
    """Return the parameters of the public stream."""
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and node.name == "StreamingLeRobotDataset":
                methods = [f for f in node.body if isinstance(f, ast.FunctionDef)]
                own = next(f for f in methods if f.name == "__init__").args
                return {arg.arg for arg in (*own.args[1:], *own.kwonlyargs)}
    return set()


def ignored_parameters(trees: Iterable[ast.Module]) -> set[str]:
    """Return the names in the table of arguments that robostream accepts and ignores."""
    nodes = (node for tree in trees for node in tree.body)
    tables = [n.value for n in nodes if isinstance(n, ast.Assign | ast.AnnAssign) and is_ignored(n)]
    keys = (key for table in tables if isinstance(table, ast.Dict) for key in table.keys)
    return {str(key.value) for key in keys if isinstance(key, ast.Constant)}


def is_ignored(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == "_IGNORED" for target in targets)


def public_names(tree: ast.Module) -> int:
    """Return the number of names in `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.List):
            return len(node.value.elts)
    return 0


def describe(counts: list[int]) -> str:
    """Return the number of counts, their median, 90th percentile and maximum."""
    ordered = sorted(counts)
    p90 = ordered[len(ordered) * 9 // 10]
    middle = statistics.median(ordered)
    return f"{len(ordered)}: median {middle:g}, p90 {p90}, longest {ordered[-1]}"


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
