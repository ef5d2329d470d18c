# SPDX-License-Identifier: Apache-2.0
"""Files in the current folder that have names of modules disturb no process that is started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.loader.programs import HEAD, without_progress
from tests.loader.streams import AV1

NAMES = ("types", "json", "enum", "operator", "runpy")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of files with names of modules."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"raise SystemExit('notes/{name}.py was imported')")
    return folder


def run_in(folder: Path, code: str, *arguments: str) -> str:
    """Run a script that lies elsewhere in a folder; return what it prints. It must not complain."""
    script = folder.with_name("script.py")
    script.write_text(code)
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert (done.returncode, without_progress(done.stderr)) == (0, "")
    return done.stdout


@pytest.mark.long
def test_workers_import_nothing_from_the_current_folder(folder: Path) -> None:
    """Neither while they start nor later, and also if the program has the folder on its path."""
    code = HEAD + "assert frames(open_loader(1)) == list(range(62))\n"
    run_in(folder, code + "sys.path.insert(0, '')\n" + code, str(AV1))


@pytest.mark.long
def test_modules_of_a_program_reach_its_workers(folder: Path) -> None:
    """A worker has the program's path, in its order, once it has started."""
    (folder / "mine").mkdir()
    (folder / "mine" / "antigravity.py").write_text(
        "def halve(picture): return picture[:, ::2, ::2]"
    )
    code = """
sys.path.insert(0, 'mine')
import antigravity
loader = open_loader(1, camera_keys=None, image_transforms=antigravity.halve)
print(next(iter(loader))["observation.images.top"].shape[2])
"""
    assert run_in(folder, HEAD + code, str(AV1)) == "24\n"


@pytest.mark.long
def test_processes_of_commands_import_nothing_from_the_current_folder(folder: Path) -> None:
    """`robostream synth` and `recode` with several processes, and their resource tracker."""
    code = """
import sys
from robostream.cli.main import main
if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
"""
    sizes = ["--episodes", "2", "--frames", "4:5", "--cameras", "1", "--size", "64x64"]
    run_in(folder, code, "synth", "made", *sizes, "--jobs", "2", "--video-file-mb", "0.001")
    run_in(folder, code, "recode", "made", "copy", "--jobs", "2")

    assert len(list(folder.glob("copy/**/*.mp4"))) == 2
