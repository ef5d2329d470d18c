# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: folders that are written atomically."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from examples.scaling.files import sync_folder, write_json
from robostream import load_training_step

LATEST = "latest"
_POLICY = "policy.json"
_NAME = re.compile(r"checkpoint-(\d+)")


def write_checkpoint(
    output_dir: Path, step: int, fill: Callable[[Path], None], *, keep: int
) -> Path:
    """Write a checkpoint to a temporary folder, sync and rename it, then delete old checkpoints.

    Args:
        output_dir: The folder of all checkpoints.
        step: Steps taken so far; the checkpoint's name.
        fill: Writes and syncs the files of the checkpoint in a folder.
        keep: How many of the latest checkpoints to keep.
    """
    path = output_dir / f"checkpoint-{step}"
    temp = output_dir / f".{path.name}.part"
    shutil.rmtree(temp, ignore_errors=True)  # from a run that was killed here
    temp.mkdir(parents=True)
    fill(temp)
    sync_folder(temp)
    temp.rename(path)
    sync_folder(output_dir)
    for old in find_checkpoints(output_dir)[:-keep]:
        _delete(old)
    return path


def find_checkpoints(output_dir: Path) -> list[Path]:
    """Return the checkpoints of a run, the latest last."""
    folders = output_dir.glob("checkpoint-*") if output_dir.is_dir() else ()
    steps = {int(found[1]): path for path in folders if (found := _NAME.fullmatch(path.name))}
    return [steps[step] for step in sorted(steps)]


def choose_checkpoint(resume_from: str | None, output_dir: Path) -> Path | None:
    """Return the checkpoint to resume from, or None for a new run.

    Raises:
        ValueError: The output folder has later checkpoints, which this run would mix with its own.
    """
    there = find_checkpoints(output_dir)
    if resume_from == LATEST:
        # None on the first start of a job that is submitted once and requeued many times.
        return there[-1] if there else None
    chosen = None if resume_from is None else Path(resume_from)
    step = -1 if chosen is None else load_training_step(chosen).step
    if there and load_training_step(there[-1]).step > step:
        raise ValueError(
            f"want an output_dir without checkpoints later than the start of this run, found "
            f"{there[-1]}. Resume from it with --resume_from {LATEST}, or choose another "
            "--output_dir."
        )
    return chosen


def write_policy_config(folder: Path, config: Mapping[str, Any], shapes: Mapping[str, Any]) -> None:
    """Write the sizes of a policy, and of its inputs and outputs, to a checkpoint."""
    write_json(folder / _POLICY, {"config": config, "interface": shapes})


def read_policy_config(folder: Path, entry: str = "config") -> dict[str, Any] | None:
    """Return the sizes of a checkpoint's policy; None for a run that only read data."""
    path = folder / _POLICY
    return dict(json.loads(path.read_text())[entry]) if path.exists() else None


def _delete(path: Path) -> None:
    """Delete a checkpoint; renamed first, so that no partial checkpoint is ever visible."""
    temp = path.with_name(f".{path.name}.old")
    shutil.rmtree(temp, ignore_errors=True)
    path.rename(temp)
    shutil.rmtree(temp)
