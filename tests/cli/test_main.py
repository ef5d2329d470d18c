# SPDX-License-Identifier: Apache-2.0
"""The command as a newcomer meets it: help, versions, mistakes, exit codes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from robostream import __version__
from robostream.cli.main import COMMANDS, main
from tests.fixture_datasets import FIXTURES


def robostream(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("robostream")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_help_lists_every_command() -> None:
    """`robostream --help` names all commands with a line each, without importing torch."""
    done = robostream("--help")

    assert done.returncode == 0
    assert all(f"\n    {name} " in done.stdout for name in COMMANDS)


def test_the_version_is_printed() -> None:
    """`robostream --version` is the package's version."""
    assert robostream("--version").stdout == f"robostream {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each command shows its options and examples that call it."""
    with pytest.raises(SystemExit) as stopped:
        main([name, "--help"])
    shown = capsys.readouterr().out

    assert stopped.value.code == 0
    assert "examples:" in shown
    assert f"robostream {name}" in shown.split("examples:")[1]
    assert importlib.import_module(f"robostream.cli.{name}").run.__doc__


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("info",), ("bench", "nothing")])
def test_a_wrong_call_exits_with_2(arguments: tuple[str, ...]) -> None:
    """A mistake in the call shows the usage."""
    done = robostream(*arguments)

    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_failure_exits_with_1_and_one_line(tmp_path: Path) -> None:
    """What goes wrong is said in words, not with a traceback."""
    done = robostream("info", str(tmp_path))

    assert done.returncode == 1
    assert "info.json: not found" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_failure() -> None:
    """`robostream ... | head -1` ends quietly."""
    command = f"{Path(sys.executable).with_name('robostream')} info {FIXTURES / 'images'} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)

    assert "Traceback" not in done.stderr


def test_the_demo_proves_its_promises_on_a_given_dataset() -> None:
    """`robostream demo --dataset` runs every proof, and its exit code says that they held."""
    done = robostream("demo", "--json", "--dataset", str(FIXTURES / "av1_multifile"))

    assert done.returncode == 0, done.stderr
    assert '"exactly once": true' in done.stdout
    assert '"resume exact": true' in done.stdout
