# SPDX-License-Identifier: Apache-2.0
"""The README's example runs as it stands, and its lists are complete; lists of all pages."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from robostream.cli.main import COMMANDS

REPO = Path(__file__).parents[2]
README = (REPO / "README.md").read_text()


def block(language: str, mark: str) -> str:
    """The block of the README that contains a text."""
    found = re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
    (text,) = (one for one in found if mark in one)
    return str(text)


def run(words: list[str], folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": str(REPO / "src"), "HF_LEROBOT_HOME": str(folder)}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_the_example_runs_on_the_dataset_it_makes(tmp_path: Path) -> None:
    """One command and ten lines, as a reader pastes them."""
    command, code = block("sh", "robostream synth"), block("python", "StreamingDataLoader")
    run(["-m", *shlex.split(command)], tmp_path)
    (tmp_path / "example.py").write_text(code)
    printed = run(["example.py"], tmp_path)

    assert printed == "torch.Size([16, 3, 96, 96]) torch.Size([16, 3, 6]) 1\n"
    assert len(code.splitlines()) <= 10


def test_the_readme_names_every_extra() -> None:
    """The table has the extras of pyproject.toml."""
    project = (REPO / "pyproject.toml").read_text()
    extras = project.split("[project.optional-dependencies]")[1].split("\n[")[0]

    named = set(re.findall(r"`robostream\[(\w+)\]`", README))
    assert named == set(re.findall(r"^(\w+) = \[", extras, re.MULTILINE))


def test_the_readme_names_every_command() -> None:
    """The table has the commands of the parser."""
    assert set(re.findall(r"^\| `robostream (\w+)", README, re.MULTILINE)) == set(COMMANDS)


def test_no_line_of_text_begins_an_item() -> None:
    """Lists have hyphens; Markdown also takes a line that begins with "+ " or "* " for an item."""
    pages = [REPO / "README.md", REPO / "CHANGELOG.md", *(REPO / "docs").rglob("*.md")]
    lines = [(path.name, line) for path in pages for line in path.read_text().splitlines()]

    assert [found for found in lines if re.match(r"\s*[+*] ", found[1])] == []
