# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: folders that are there whole or not at all."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

from examples.scaling.files import sync_folder
from robostream import load_training_step

LATEST = "latest"
_NAME = re.compile(r"checkpoint-(\d+)")


def write_checkpoint(
    output_dir: Path, step: int, fill: Callable[[Path], None], *, keep: int
) -> Path:
    """Write a checkpoint aside, rename it when the disk has it, and drop all but the last `keep`.

    Args:
        output_dir: Where checkpoints lie.
        step: Steps taken so far; the checkpoint's name.
        fill: Writes the files into a folder, and waits until the disk has each.
        keep: How many of the latest checkpoints stay.
    """
    path = output_dir / f"checkpoint-{step}"
    aside = output_dir / f".{path.name}.part"
    shutil.rmtree(aside, ignore_errors=True)  # of a run that was killed while it wrote
    aside.mkdir(parents=True)
    fill(aside)
    sync_folder(aside)
    aside.rename(path)
    sync_folder(output_dir)
    for old in find_checkpoints(output_dir)[:-keep]:
        _drop(old)
    return path


def find_checkpoints(output_dir: Path) -> list[Path]:
    """Return the checkpoints of a run, the latest last."""
    folders = output_dir.glob("checkpoint-*") if output_dir.is_dir() else ()
    steps = {int(found[1]): path for path in folders if (found := _NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def choose_checkpoint(resume_from: str | None, output_dir: Path) -> Path | None:
    """Return the checkpoint to go on from, or None to begin anew.

    Raises:
        ValueError: The output folder has checkpoints that this run would mix with its own.
    """
    there = find_checkpoints(output_dir)
    if resume_from == LATEST:
        # None on the first start of a job that is submitted once and requeued many times.
        return there[-1] if there else None
    chosen = None if resume_from is None else Path(resume_from)
    step = -1 if chosen is None else load_training_step(chosen).step
    if there and load_training_step(there[-1]).step > step:
        raise ValueError(
            f"want an output_dir without checkpoints later than where the run begins, found "
            f"{there[-1]}. Go on from it with --resume_from {LATEST}, or choose another "
            "--output_dir."
        )
    return chosen


def _drop(path: Path) -> None:
    """Delete a checkpoint so that no part of it can be taken for one."""
    aside = path.with_name(f".{path.name}.old")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    shutil.rmtree(aside)
