# SPDX-License-Identifier: Apache-2.0
"""The processes of a run: their group, and what they exchange."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, MutableMapping
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor, distributed

T = TypeVar("T")

# How long processes wait for each other, since one of them may download a dataset.
_PATIENCE = timedelta(hours=2)


class Processes:
    """The process group of a run."""

    def __init__(self, mixed_precision: str | None) -> None:
        adopt_slurm(os.environ)
        patience = InitProcessGroupKwargs(timeout=_PATIENCE)
        self.accelerator = Accelerator(mixed_precision=mixed_precision, kwargs_handlers=[patience])
        self.rank: int = self.accelerator.process_index
        self.count: int = self.accelerator.num_processes
        self.is_main: bool = self.accelerator.is_main_process
        check_group(os.environ, self.count)
        # The sums of every step use the CPU: with NCCL, each would wait for all queued GPU work.
        self._group = distributed.new_group(backend="gloo") if self.count > 1 else None

    def add_up(self, *numbers: int) -> list[int]:
        """Return the sums of some numbers over all processes, modulo 2^64. Blocks."""
        sums = self._sum(torch.tensor([_signed(number) for number in numbers]))
        return [int(number) % (1 << 64) for number in sums]

    def add_up_floats(self, *numbers: float) -> list[float]:
        """Return the sums of some numbers over all processes. Blocks."""
        sums = self._sum(torch.tensor(numbers, dtype=torch.float64))
        return [float(number) for number in sums]

    def gather(self, value: T) -> list[T]:
        """Return the value of every process, by rank. Blocks."""
        return [value] if self.count == 1 else list(gather_object([value]))

    def one_after_another(self, open_dataset: Callable[[str | None], T], revision: str | None) -> T:
        """Return the dataset that each process opens; each node downloads once. Blocks.

        The main process opens it first, and all others open the commit that it resolved, since a
        branch may move in between. Then the first process of each node downloads, and the others of
        the node use its files.

        Args:
            open_dataset: Takes a revision; returns an object with an attribute `revision`.
            revision: The revision that the user asked for.
        """
        opened = open_dataset(revision) if self.is_main else None
        pinned = broadcast_object_list([getattr(opened, "revision", None)])[0]
        with self.accelerator.local_main_process_first():
            return opened if opened is not None else open_dataset(pinned)

    def wait(self) -> None:
        """Wait for all processes."""
        self.accelerator.wait_for_everyone()

    def close(self) -> None:
        """Leave the process group."""
        self.accelerator.end_training()

    def _sum(self, numbers: Tensor) -> Tensor:
        if self._group is not None:
            distributed.all_reduce(numbers, group=self._group)
        return numbers


def adopt_slurm(environment: MutableMapping[str, str]) -> None:
    """Set torch's and Accelerate's variables from those of srun.

    Variables that are set stay unchanged, since torchrun or accelerate may run inside srun. The
    main process listens on the node where srun was called: in a batch script, the first node.
    """
    if "RANK" in environment or "SLURM_STEP_NUM_TASKS" not in environment:
        return
    job = int(environment["SLURM_JOB_ID"])
    found = {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment["SLURM_STEP_NUM_TASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "MASTER_ADDR": environment.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1"),
        "MASTER_PORT": str(20_000 + job % 10_000),  # jobs that share a node need different ports
    }
    for name, value in found.items():
        environment.setdefault(name, value)


def check_group(environment: MutableMapping[str, str], count: int) -> None:
    """Raise RuntimeError if the launcher started several processes without a common group.

    `accelerate launch --cpu --num_machines 2` does: it sets MASTER_ADDR but no world size, so each
    process would train alone on the whole dataset.
    """
    announced = environment.get("WORLD_SIZE")
    if int(announced or count) != count or (announced is None and "MASTER_ADDR" in environment):
        raise RuntimeError(
            f"want the {announced or 'several'} processes that the launcher announced in one "
            f"group, found a group of {count}. Start them with torchrun, srun or accelerate launch "
            "--multi_gpu (on CPUs too, with ACCELERATE_USE_CPU=true); or unset MASTER_ADDR if this "
            "process is alone."
        )


def use_half_of_the_cores() -> None:
    """Leave half of the cores to the loader's workers when training runs on the CPU.

    Torch takes all cores by default, and its threads then wait for each other while workers decode:
    six times slower on two cores. OMP_NUM_THREADS, which launchers set too, decides if it is set.
    """
    if "OMP_NUM_THREADS" not in os.environ and not torch.cuda.is_available():
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // 2))


def fail(error: Exception) -> int:
    """Print an error in one line; return the exit code."""
    print(f"{Path(sys.argv[0]).name}: {error}", file=sys.stderr)
    return 1


def _signed(number: int) -> int:
    """Return a number below 2^64 as a signed 64-bit number."""
    return number - (1 << 64) if number >= 1 << 63 else number
