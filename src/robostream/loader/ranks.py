# SPDX-License-Identifier: Apache-2.0
"""Which process of the training run this is, and how many share its machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from robostream import arguments
from robostream.errors import SelectionError

# The variables in which launchers give the number of processes on this machine.
_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


@dataclass(frozen=True, slots=True)
class Rank:
    """The number of this process among the `world_size` processes that share an epoch.

    `found_in` is the source of the two numbers, for error messages.
    """

    rank: int
    world_size: int
    found_in: str

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise SelectionError(
                f"want 0 <= rank < world_size, got rank={self.rank} and "
                f"world_size={self.world_size} (from {self.found_in})"
            )


def discover_rank(rank: int | None = None, world_size: int | None = None) -> Rank:
    """Return the given rank, else Accelerate's, torch's, the environment's, else (0, 1).

    Initialises nothing: Accelerate and torch.distributed count only if the program has initialised
    them, RANK and WORLD_SIZE only if both are set, SLURM's variables only in processes that srun
    started. Raises SelectionError in a job of several tasks for a process that srun did not start.
    """
    if (rank is None) != (world_size is None):
        raise SelectionError(
            f"give both rank and world_size or neither, got rank={rank}, world_size={world_size}"
        )
    if rank is not None and world_size is not None:
        return Rank(
            arguments.whole_number(rank, "rank", 0),
            arguments.whole_number(world_size, "world_size", 1),
            "the arguments",
        )
    return (
        _from_accelerate()
        or _from_torch()
        or _from_environment("RANK", "WORLD_SIZE")
        or _from_slurm()
        or Rank(0, 1, "no launcher")
    )


def local_ranks(world_size: int, environment: Mapping[str, str] | None = None) -> int:
    """Return how many ranks share this machine; at most the world size.

    Slurm lists the tasks of a step on each node. It gives the number asked for per node only if
    someone asked, and that need not be how many there are.
    """
    variables = os.environ if environment is None else environment
    for name in _LOCAL_RANKS:
        text = variables.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), world_size)
    return min(len(variables.get("SLURM_GTIDS", "0").split(",")), world_size)


def _from_accelerate() -> Rank | None:
    state = sys.modules.get("accelerate.state")
    shared = getattr(getattr(state, "PartialState", None), "_shared_state", None)
    if not shared:
        return None
    return Rank(int(shared["process_index"]), int(shared["num_processes"]), "accelerate")


def _from_torch() -> Rank | None:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return None
    return Rank(
        torch.distributed.get_rank(), torch.distributed.get_world_size(), "torch.distributed"
    )


def _from_slurm() -> Rank | None:
    """Return the rank that srun gave this process.

    Srun sets SLURM_STEP_NUM_TASKS to the number of tasks it started, which may be fewer than the
    job has. In a batch script that variable is not set, but SLURM_PROCID is 0 and SLURM_NTASKS is
    the number of tasks of the job. As a rank, a batch script would deliver only its share of the
    frames, and no process would deliver the rest.
    """
    step = _from_environment("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if step is not None:
        return step
    job = _from_environment("SLURM_PROCID", "SLURM_NTASKS")
    if job is None or job.world_size == 1:
        return None
    raise SelectionError(
        f"this process runs in a SLURM job of {job.world_size} tasks (SLURM_NTASKS) but was not "
        "started by srun (SLURM_STEP_NUM_TASKS is not set), so it is unclear whether it is alone "
        "or one of them. Start it with srun or torchrun; or, if it is alone, pass rank=0 and "
        "world_size=1, or unset SLURM_PROCID."
    )


def _from_environment(rank_name: str, world_name: str) -> Rank | None:
    rank, world = os.environ.get(rank_name), os.environ.get(world_name)
    if rank is None or world is None:
        return None
    try:
        numbers = int(rank), int(world)
    except ValueError as error:
        raise SelectionError(
            f"want whole numbers in {rank_name} and {world_name}, got {rank!r} and {world!r}"
        ) from error
    return Rank(*numbers, f"{rank_name} and {world_name}")
