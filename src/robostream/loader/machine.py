# SPDX-License-Identifier: Apache-2.0
"""What this process may use of its machine: cores, memory, open files."""

from __future__ import annotations

import math
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
# The variables in which launchers say how many processes of the training run are on this machine.
_LOCAL_RANKS = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")


def local_ranks(world_size: int, environment: Mapping[str, str] | None = None) -> int:
    """Return how many ranks share this machine; at most the world size.

    Slurm lists the tasks of a step on each node. It says how many were asked for per node only if
    someone asked for that, and that need not be how many there are.
    """
    variables = os.environ if environment is None else environment
    for name in _LOCAL_RANKS:
        text = variables.get(name, "")
        if text.isdigit() and int(text) > 0:
            return min(int(text), world_size)
    return min(len(variables.get("SLURM_GTIDS", "0").split(",")), world_size)


def share_of_cores(ranks: int) -> int:
    """Return how many cores this rank may use, if `ranks` ranks share the machine."""
    cores = _affinity(os.getpid())
    allowed = len(cores) if cores else os.cpu_count() or 1
    quota = _cpu_quota()
    if quota is not None:
        allowed = min(allowed, max(1, math.ceil(quota)))
    if cores and _is_split(cores):
        return allowed
    return max(1, allowed // ranks)


def usable_memory() -> int:
    """Return how many bytes the machine, this process's cgroup and its `ulimit -v` have left."""
    available = min(_available_memory(), max(0, _address_space() - _used_address_space()))
    limit, used = _read_number("memory.max"), _read_number("memory.current")
    if limit is not None:
        available = min(available, max(0, limit - (used or 0)))
    return available


def whole_memory() -> int:
    """Return how many bytes the machine, this process's cgroup or its `ulimit -v` has in all."""
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(physical, _address_space(), _read_number("memory.max") or physical)


def open_files_share() -> int:
    """Return how many files a reader should hold open: a quarter of what the process may."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 20 if soft == resource.RLIM_INFINITY else max(8, soft // 4)


def _affinity(process: int) -> set[int]:
    try:
        return os.sched_getaffinity(process)
    except (AttributeError, OSError):  # macOS has no affinity, a process that ended has none
        return set()


def _is_split(cores: set[int]) -> bool:
    """Return whether the launcher has given this process cores of its own.

    It has if the parent process may use more cores, or if Slurm says how many each task has.
    """
    per_task = os.environ.get("SLURM_CPUS_PER_TASK", "")
    if per_task.isdigit() and len(cores) <= int(per_task):
        return True
    return cores < _affinity(os.getppid())


def _cpu_quota() -> float | None:
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _address_space() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def _used_address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _available_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return whole_memory()


def _read_number(name: str) -> int | None:
    try:
        text = (_CGROUP / name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
