# SPDX-License-Identifier: Apache-2.0
"""The site builds strictly: links hold, and the reference has every public name."""

from __future__ import annotations

import ast
import html
import importlib.util
import inspect
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import robostream
import robostream.config
import robostream.plan

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
PARTS = ("README.md", "mkdocs.yml", "docs", "src", "scripts", "examples", "slurm", "benchmarks")


def check_out(folder: Path) -> Path:
    """Copy the files that the site is built from."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PARTS:
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, folder / name, ignore=ignored)
        else:
            shutil.copy(REPO / name, folder / name)
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that a test may spoil."""
    return check_out(tmp_path)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = check_out(tmp_path_factory.mktemp("checkout"))
    done = build(folder)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """scripts/site_hooks.py."""
    path = REPO / "scripts" / "site_hooks.py"
    spec = importlib.util.spec_from_file_location("site_hooks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(repo: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` runs."""
    environment = os.environ | {
        "NO_MKDOCS_2_WARNING": "1",
        "PYTHONPATH": os.pathsep.join([str(repo / "src"), *filter(None, sys.path)]),
    }
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    return subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True)


def test_the_site_builds(built: Path) -> None:
    """Without a warning, with drawings in their pages and every command on its page."""
    home, order, commands, streams = (
        (built / name / "index.html").read_text()
        for name in ("", "order", "reference/cli", "reference/streaming")
    )
    assert 'class="peers drawing"' in home
    assert 'aria-label="The order of an epoch' in order
    assert "--episode_pool_size" in commands
    assert re.search(r'id="robostream-bench-peers"', commands)
    assert f"seed: int = {robostream.config.SEED}," in re.sub(r"<[^>]+>", "", streams)
    assert '<a href="../../loading/">docs/loading.md</a>' in streams
    assert (built / "files/benchmarks/results/peers.json").exists()


def public_attributes() -> Iterator[tuple[str, str]]:
    """Yield the public classes, and each method and attribute they or their objects have."""
    for package in (robostream, robostream.plan):
        for name in package.__all__:
            kind = getattr(package, name)
            if inspect.isclass(kind):
                for owner in kind.__mro__:
                    if owner.__module__.startswith("robostream"):
                        yield from ((name, found) for found in names_in_class(owner))


def names_in_class(kind: type) -> set[str]:
    """Return the public names in a class, its annotations, and those its methods give `self`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(kind)))
    given = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node.value) == "self"
    }
    names = given | set(vars(kind)) | set(vars(kind).get("__annotations__", {}))
    return {name for name in names if not name.startswith("_")}


def test_the_reference_has_every_attribute(built: Path) -> None:
    """Each one of each public class, under its own heading, with a text."""
    texts: dict[str, list[str]] = {}
    for path in (built / "reference").glob("*/index.html"):
        article = path.read_text().split("</article>")[0]
        _, *parts = re.split(r'<h\d id="robostream\.(?:plan\.)?([\w.]+)"', article)
        for name, part in zip(parts[::2], parts[1::2], strict=True):
            texts[name] = re.findall(r"<p>(.+?)</p>", part, re.DOTALL)
    wanted = {f"{kind}.{name}" for kind, name in public_attributes()}

    assert {"StreamingLeRobotDataset.fps", "StreamingLeRobotDataset.seed", "Cut.rank"} <= wanted
    assert sorted(name for name in wanted if not texts.get(name)) == []
    assert html.unescape(texts["StreamingLeRobotDataset.lanes"][0]) == (
        inspect.getdoc(robostream.StreamingLeRobotDataset.lanes)
    )


@pytest.mark.parametrize(
    ("page", "old", "new", "complaint"),
    [
        ("docs/memory.md", "(cache.md)", "(cash.md)", "cash.md"),
        ("docs/memory.md", "(cache.md#decoded-rows)", "(cache.md#decoded-cows)", "decoded-cows"),
        ("README.md", "results/peers.json", "results/pears.json", "pears.json"),
        (
            "docs/tutorials/laptop.md",
            '"examples/tutorials/laptop.py',
            '"examples/gone.py',
            "gone.py",
        ),
        ("docs/reference/errors.md", "::: robostream.StateError\n", "", "robostream.StateError"),
        (
            "src/robostream/errors.py",
            '    """A saved state belongs to another dataset, selection of episodes or order."""\n',
            "    x = 1\n",
            "robostream.StateError is public and has no docstring",
        ),
        (
            "src/robostream/plan/sharding.py",
            "        drop_last: Whether to drop",
            "        drop_first: Whether to drop",
            "robostream.plan.Cut.drop_last is public and has no docstring",
        ),
    ],
)
def test_what_is_wrong_fails_the_build(
    copy: Path, page: str, old: str, new: str, complaint: str
) -> None:
    """A broken link or anchor, a lost script, an undocumented public name."""
    text = (copy / page).read_text()
    assert old in text
    (copy / page).write_text(text.replace(old, new))
    done = build(copy)

    assert done.returncode != 0
    assert complaint in done.stderr


def test_the_reference_has_every_public_name(hooks: ModuleType) -> None:
    """Each name of `robostream.__all__` and of `robostream.plan.__all__`, with a docstring."""
    pages = [path.read_text() for path in (REPO / "docs/reference").glob("*.md")]

    assert hooks.reference_problems(pages) == []
    assert len(hooks.reference_problems(pages[1:])) > 0


def test_links_outside_the_pages_lead_to_copies(hooks: ModuleType) -> None:
    """From the README, from a page, and from a page in a folder."""
    assert hooks.site_path("README.md", "index.md", "docs/order.md") == "order.md"
    assert hooks.site_path("README.md", "index.md", "a/b.json") == "files/a/b.json"
    assert hooks.site_path("docs/x.md", "x.md", "../a/b.json") == "files/a/b.json"
    assert hooks.site_path("docs/t/x.md", "t/x.md", "../../a.py") == "../files/a.py"
    assert hooks.site_path("docs/t/x.md", "t/x.md", "../order.md") == "../order.md"
