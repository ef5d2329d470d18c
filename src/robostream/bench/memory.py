# SPDX-License-Identifier: Apache-2.0
"""The memory of this process, as Linux counts it."""

from __future__ import annotations

from pathlib import Path


def resident_bytes() -> int:
    """Return the memory this process has now, libraries included."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the most memory this process ever had."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    return _status("VmHWM")


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; memory can be measured on Linux only")
