# SPDX-License-Identifier: Apache-2.0
"""The site builds strictly: links hold, and the reference has every public name."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.long

REPO = Path(__file__).parents[2]
PARTS = ("README.md", "mkdocs.yml", "docs", "src", "scripts", "examples", "slurm", "benchmarks")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A checkout that a test may spoil."""
    ignored = shutil.ignore_patterns("__pycache__")
    for name in PARTS:
        if (REPO / name).is_dir():
            shutil.copytree(REPO / name, tmp_path / name, ignore=ignored)
        else:
            shutil.copy(REPO / name, tmp_path / name)
    return tmp_path


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


def test_the_site_builds(copy: Path) -> None:
    """Without a warning, with drawings in their pages and every command on its page."""
    done = build(copy)

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    home, order, commands = (
        (copy / "site" / name / "index.html").read_text() for name in ("", "order", "reference/cli")
    )
    assert 'class="peers drawing"' in home
    assert 'aria-label="The order of an epoch' in order
    assert "--episode_pool_size" in commands
    assert re.search(r'id="robostream-bench-peers"', commands)
    assert (copy / "site/files/benchmarks/results/peers.json").exists()


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
