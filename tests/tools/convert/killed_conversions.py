# SPDX-License-Identifier: Apache-2.0
"""Convert in child processes, kill each before another change of a name on disk, and resume.

    python -m tests.tools.convert.killed_conversions FOLDER

Everything is imported once, then each run is a forked process. Prints one line per kill, with how
many finished files the next run kept; exits 1 at the first copy that is not whole.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from robostream.tools import ConvertReport, convert_dataset
from tests.fixture_datasets import FIXTURES
from tests.forked import die_before_step, in_child

SOURCE = FIXTURES / "v21_videos"


def convert(copy: Path) -> ConvertReport:
    return convert_dataset(SOURCE, copy)


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in sorted(root.rglob("*")) if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def convert_until_step(copy: Path, step: int) -> None:
    die_before_step(step)
    convert(copy)


def resume_and_check(copy: Path, whole: Path, step: int) -> None:
    """After a kill, there is a whole copy or none; then the next run makes one."""
    kept = 3 if copy.exists() else convert(copy).kept_files
    assert contents(copy) == contents(whole)
    print(f"step {step}: {kept} kept", flush=True)


def main(folder: Path) -> None:
    whole, step, killed = folder / "whole", 0, True
    _, status = os.waitpid(in_child(lambda: convert(whole)), 0)
    assert status == 0
    while killed:
        step += 1
        copy = folder / f"step{step}"
        _, status = os.waitpid(in_child(lambda c=copy, s=step: convert_until_step(c, s)), 0)
        killed = os.WIFSIGNALED(status)
        assert killed or status == 0, "the conversion failed"
        _, status = os.waitpid(in_child(lambda c=copy, s=step: resume_and_check(c, whole, s)), 0)
        if status:
            sys.exit(f"{copy}: killed before step {step}; see the error above")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
