# SPDX-License-Identifier: Apache-2.0
"""The command for newcomers: help, version, mistakes, exit codes."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from robostream import __version__
from robostream.cli.main import COMMANDS, main
from tests.fixture_datasets import FIXTURES
from tests.parameters import long_except
from tests.servers.hub import Hub

IMAGES = str(FIXTURES / "images")


def robostream(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("robostream")), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, **options
    )


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


@pytest.mark.parametrize("arguments", [(), ("nonsense",), ("info",), ("bench", "nothing")])
def test_a_wrong_call_exits_with_2(arguments: tuple[str, ...]) -> None:
    """Wrong usage prints the usage."""
    done = robostream(*arguments)

    assert done.returncode == 2
    assert "usage:" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "listed"), [((), set(COMMANDS)), (("cache",), {"info", "warm", "clear"})]
)
def test_without_a_command_there_is_the_list(
    arguments: tuple[str, ...], listed: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody who types only the name sees what follows it; exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    shown = capsys.readouterr().err

    assert stopped.value.code == 2
    assert listed <= set(re.findall(r"^ {4}(\w+) ", shown, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("inof", IMAGES), "(did you mean info?)"),
        (("cache", "wram", IMAGES), "(did you mean warm?)"),
        (("plan", IMAGES, "--btch-size", "3"), "--btch-size (did you mean --batch-size?)"),
        (("cache", "info", "--cache-dri=x"), "--cache-dri=x (did you mean --cache-dir?)"),
        (("recode", IMAGES, "copy", "--codec", "h246"), "(did you mean h264?)"),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(
    arguments: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, actions, options and choices; exit code 2."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == 2
    assert meant in capsys.readouterr().err


def test_an_error_names_the_option_of_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The library says `image_cameras`, the command has `--image-cameras`."""
    assert main(["synth", str(tmp_path / "new"), "--image-cameras", "9"]) == 2
    assert capsys.readouterr().err == (
        "robostream synth: want --image-cameras of 0 to 3, the number of cameras, got 9\n"
    )


def test_an_empty_cache_is_an_object_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Scripts read the same fields whether the cache exists or not; it is not created."""
    folder = tmp_path / "cache"
    assert main(["cache", "info", "--json", "--cache-dir", str(folder)]) == 0
    info = json.loads(capsys.readouterr().out)
    assert main(["cache", "clear", "--json", "--cache-dir", str(folder)]) == 0

    assert (info["folder"], info["used_bytes"], info["files"]) == (str(folder), 0, [])
    assert json.loads(capsys.readouterr().out) == {"freed_bytes": 0}
    assert not folder.exists()


def test_a_failure_exits_with_1_and_one_line(tmp_path: Path) -> None:
    """An error is one sentence, not a traceback."""
    done = robostream("info", str(tmp_path))

    assert done.returncode == 1
    assert "info.json: not found" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["info", "plan", "order", "shuffle", "diagnose"])
@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("nowhere", "There is nothing at"),
        ("file", "There is a file at"),
        ("empty", "The folder is empty"),
        ("others", "The folder holds notes.txt"),
        ("many", "There are datasets below"),
        ("many/images/meta", "The folder above it is a dataset"),
    ],
)
def test_each_kind_of_missing_dataset_has_its_message(
    command: str, where: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A mistyped path, a file, and folders above and below a dataset are distinguished."""
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "notes.txt").touch()
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "images").symlink_to(FIXTURES / "images")
    code = main([command, str(tmp_path / where)])
    printed = capfd.readouterr()

    assert code == 1
    # A diagnosis is wrapped.
    assert said in " ".join((printed.err + printed.out).split())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("order", IMAGES, "--log", "no/such/a.jsonl"), "no/such/a.jsonl: No such file"),
        (("order", IMAGES, "--log", "/dev/full"), "/dev/full: No space left on device"),
        # Said before the dataset is looked for, and measured.
        (
            ("bench", "stream", "--repo_id", "./nope", "--out_dir", f"{__file__}/out"),
            "results cannot be written to",
        ),
        (("bench", "meta", "--out", f"{__file__}/out"), "results cannot be written to"),
        (("bench", "loader", "--only", "nothing"), "want some of single, sarm"),
        (("diagnose", IMAGES, "--episode", "99"), "there is no episode 99"),
    ],
)
def test_failures_of_other_kinds_are_one_line_too(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Unwritable files and unknown names."""
    assert main(arguments) in (1, 2)
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("info", IMAGES, "--episodes", "two"), "want a whole number above 0, got two"),
        (("plan", IMAGES, "--seed", "-5"), "want a whole number of 0 or more, got -5"),
        (("plan", IMAGES, "--epoch", "1.5"), "want a whole number of 0 or more, got 1.5"),
        (("shuffle", IMAGES, "--plot", "a.doc"), "ends in .svg, .png or .pdf, got a.doc"),
    ],
)
def test_impossible_arguments_are_rejected(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says what is wanted, before anything is read."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)

    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_an_invalid_environment_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message is one sentence, not a traceback."""
    monkeypatch.setenv("LEROBOT_HOME", "/data")

    assert main(["info", "some/name"]) == 1
    assert "rename it to HF_LEROBOT_HOME" in capsys.readouterr().err


def test_a_closed_pipe_is_not_a_failure() -> None:
    """`robostream ... | head -1` ends quietly."""
    command = f"{Path(sys.executable).with_name('robostream')} info {FIXTURES / 'images'} | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120)

    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_the_demo_checks_its_promises_on_a_given_dataset() -> None:
    """`robostream demo --dataset` runs every check, and exits with 0 if all hold."""
    done = robostream("demo", "--json", "--dataset", str(FIXTURES / "av1_multifile"))

    assert done.returncode == 0, done.stderr
    assert '"exactly once": true' in done.stdout
    assert '"resume exact": true' in done.stdout


def test_an_interrupt_is_one_line_while_a_command_is_still_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ctrl-C while torch loads prints no traceback; the exit code is 130."""

    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)

    assert main(["info", IMAGES]) == 130
    assert capsys.readouterr().err == "robostream: interrupted\n"


@pytest.mark.parametrize("command", long_except(["info", "plan", "diagnose"], "info"))
def test_an_unknown_name_lists_the_places_searched(command: str, hub: Hub, tmp_path: Path) -> None:
    """The Hub and the folder of that name, with the folder's contents."""
    environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "home")}
    (tmp_path / "many").mkdir()
    (tmp_path / "many" / "images").symlink_to(FIXTURES / "images")
    for name, said in (("nope", f"nothing at {tmp_path}/nope"), ("many", "are datasets below")):
        done = robostream(command, name, cwd=tmp_path, env=environment)
        printed = " ".join((done.stderr + done.stdout).split())  # a diagnosis is wrapped

        assert done.returncode == 1
        assert f"{name}: no such dataset on the Hub" in printed
        assert "Nor is it a local dataset" in printed
        assert said in printed
