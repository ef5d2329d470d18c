# SPDX-License-Identifier: Apache-2.0
"""A process that loads one dataset's metadata and tells what that cost: `-m … FOLDER`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from robostream.meta import LeRobotDatasetMetadata


def measure(root: str) -> dict[str, object]:
    """Return seconds and bytes of loading and of the fingerprint, in this process."""
    before_bytes = _memory_bytes("VmRSS")
    started = time.perf_counter()
    meta = LeRobotDatasetMetadata("bench/meta", root=root)
    loaded = time.perf_counter()
    fingerprint = meta.fingerprint
    finished = time.perf_counter()
    peak_bytes = _memory_bytes("VmHWM")
    return {
        "episodes": len(meta.episodes),
        "load_s": loaded - started,
        "fingerprint_s": finished - loaded,
        "fingerprint": fingerprint,
        "table_bytes": meta.episodes.nbytes,
        "peak_bytes": peak_bytes,
        "added_bytes": peak_bytes - before_bytes,
    }


def _memory_bytes(field: str) -> int:
    # Not getrusage: its peak is inherited from the process that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}; this benchmark runs on Linux only")


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1])))
