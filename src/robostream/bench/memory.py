# SPDX-License-Identifier: Apache-2.0
"""The memory of this process and those it started, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path


def resident_bytes() -> int:
    """Return the memory this process has now, libraries included."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most memory this process ever had."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    return _status("VmHWM")


def tree_bytes() -> int:
    """Return the memory of this process and all below it, shared pages counted once."""
    return sum(_share(process) for process in _below(os.getpid()))


def _below(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _below(int(child)))]


def _share(process: int) -> int:
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; memory can be measured on Linux only")
