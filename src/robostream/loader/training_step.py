# SPDX-License-Identifier: Apache-2.0
"""training_step.json of a checkpoint: the progress of a run, and resuming a sampler from it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robostream import arguments
from robostream.assemble import EpisodeSplit, check_no_leakage
from robostream.errors import SelectionError, StateError, WriteError
from robostream.loader.sampler import EpisodeAwareSampler, SamplerState, compute_sampler_state
from robostream.storage import write_bytes_atomic

logger = logging.getLogger(__name__)

TRAINING_STEP = "training_step.json"


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """The progress that a checkpoint records; None where its file has no value.

    Attributes:
        step: Batches each process has taken since the start of training.
        num_processes: Processes that read different batches (LeRobot's dp_world_size).
        batch_size: Frames of one process's batch.
        grad_accum_steps: Batches per optimizer step; it does not change the position in the data.
        parallelism: LeRobot's degrees of model parallelism, unchanged.
        sampler_state: The sampler's state, if the run recorded it.
        split: The episodes to train and to validate on, if the run split them.
    """

    step: int
    num_processes: int | None = None
    batch_size: int | None = None
    grad_accum_steps: int | None = None
    parallelism: Mapping[str, int] | None = None
    sampler_state: SamplerState | None = None
    split: EpisodeSplit | None = None


def save_training_step(
    folder: str | Path,
    step: int,
    *,
    num_processes: int,
    batch_size: int,
    grad_accum_steps: int | None = None,
    parallelism: Mapping[str, int] | None = None,
    sampler_state: SamplerState | None = None,
    split: EpisodeSplit | None = None,
) -> Path:
    """Write `training_step.json` into a folder, whole or not at all, and return its path.

    LeRobot reads the file too: it holds the world size under both of LeRobot's names. Call this on
    one process only.

    Args:
        folder: The checkpoint's folder (LeRobot's `training_state`); created if missing.
        step: Batches each process has taken since the start of training.
        num_processes: Processes that read different batches.
        batch_size: Frames of one process's batch.
        grad_accum_steps: Batches per optimizer step.
        parallelism: LeRobot's degrees of model parallelism.
        sampler_state: The sampler's state. Needed once a run has resumed with another number of
            frames per step, because `step` alone no longer gives the position; pass
            `compute_sampler_state(steps_since_resume, ..., start=state_at_the_resume)`.
        split: The episodes to train and to validate on, from `split_episodes`; `load_training_step`
            returns them.
    """
    processes = arguments.whole_number(num_processes, "num_processes", 1)
    fields: dict[str, Any] = {
        "step": arguments.whole_number(step, "step", 0),
        "dp_world_size": processes,
        "num_processes": processes,
        "batch_size": arguments.whole_number(batch_size, "batch_size", 1),
        "grad_accum_steps": grad_accum_steps,
        "parallelism": None if parallelism is None else dict(parallelism),
        "sampler_state": sampler_state,
        "split": None if split is None else _check_split(split)._asdict(),
    }
    text = json.dumps({key: value for key, value in fields.items() if value is not None})
    path = Path(folder) / TRAINING_STEP
    try:
        write_bytes_atomic(path, text.encode())
    except OSError as error:
        raise WriteError(
            f"could not write {path}: {error}; an existing file is unchanged"
        ) from error
    return path


def load_training_step(folder: str | Path) -> TrainingStep:
    """Return the progress recorded in a folder's `training_step.json`, ours or LeRobot's."""
    path = Path(folder) / TRAINING_STEP
    try:
        fields = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise StateError(
            f"no {TRAINING_STEP} in {path.parent}; want the training_state folder of a checkpoint"
        ) from error
    except ValueError as error:
        raise StateError(f"{path} is not JSON ({error}); resume from another checkpoint") from error
    step = _whole_number(fields, "step", path, least=0) if isinstance(fields, dict) else None
    if step is None:
        raise StateError(f"want a JSON object with 'step' in {path}, got {fields!r}")
    world_size_key = "dp_world_size" if "dp_world_size" in fields else "num_processes"
    return TrainingStep(
        step=step,
        num_processes=_whole_number(fields, world_size_key, path, least=1),
        batch_size=_whole_number(fields, "batch_size", path, least=1),
        grad_accum_steps=_whole_number(fields, "grad_accum_steps", path, least=1),
        parallelism=fields.get("parallelism"),
        sampler_state=fields.get("sampler_state"),
        split=_read_split(fields, path),
    )


def resume_sampler(
    sampler: EpisodeAwareSampler, saved: TrainingStep, *, batch_size: int, num_processes: int
) -> SamplerState:
    """Move a sampler to the position of a checkpoint, and return its state there.

    That is the state the checkpoint recorded, else one computed from the checkpoint's own step,
    batch size and world size. The current sizes only decide how the rest is cut up; if they differ,
    a warning tells what stays exact. Under Accelerate, then call `set_epoch(state["epoch"])` on the
    prepared loader.
    """
    was_batch_size = saved.batch_size or batch_size
    was_processes = saved.num_processes or num_processes
    state = saved.sampler_state or compute_sampler_state(
        saved.step, len(sampler), was_batch_size, was_processes
    )
    sampler.load_state_dict(state)
    state = sampler.state_dict()
    if saved.sampler_state is None and None in (saved.batch_size, saved.num_processes):
        logger.warning(
            "The checkpoint does not say how many frames a step took. Resuming at epoch %d, sample "
            "%d, which is right only if it was written by %d processes with batch size %d.",
            *(state["epoch"], state["start_index"], was_processes, was_batch_size),
        )
    if (was_processes, was_batch_size) != (num_processes, batch_size):
        _warn_recut(state, was=(was_processes, was_batch_size), now=(num_processes, batch_size))
    return state


def _warn_recut(state: SamplerState, *, was: tuple[int, int], now: tuple[int, int]) -> None:
    """Warn what a change of (processes, batch size) keeps and what it changes."""
    if was[0] * was[1] == now[0] * now[1]:
        kept, changed = "the frames of each step", "which process reads a frame"
    else:
        kept = "every frame of the epoch once"
        changed = (
            "which frames make a step, and which process reads them; the step count no longer "
            "tells where the data stands, so pass sampler_state to save_training_step from now on"
        )
    logger.warning(
        "Resuming with %d processes and batch size %d, the checkpoint had %d and %d. Exact: epoch "
        "%d, sample %d, the order from there on, %s. Not the same: %s.",
        *(*now, *was, state["epoch"], state["start_index"], kept, changed),
    )


def _check_split(split: EpisodeSplit) -> EpisodeSplit:
    """Return a split as plain lists; raise SelectionError if its halves share an episode."""
    check_no_leakage(split.train, split.val)
    return EpisodeSplit(*(arguments.whole_numbers(half, "split") for half in split))


def _read_split(fields: dict[str, Any], path: Path) -> EpisodeSplit | None:
    if fields.get("split") is None:
        return None
    try:
        return _check_split(EpisodeSplit(**fields["split"]))
    except (TypeError, SelectionError) as error:
        raise StateError(
            f"{path}: want two lists of episodes, train and val, in 'split' ({error}). Resume from "
            "another checkpoint."
        ) from error


def _whole_number(fields: dict[str, Any], key: str, path: Path, *, least: int) -> int | None:
    """Return a field's number, or None if the file lacks the field."""
    if fields.get(key) is None:
        return None
    try:
        return arguments.whole_number(fields[key], key, least)
    except SelectionError as error:
        raise StateError(f"{path}: {error}. Resume from another checkpoint.") from error
