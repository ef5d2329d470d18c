# SPDX-License-Identifier: Apache-2.0
"""The process that `robostream bench meta` starts: it loads one folder and says what that cost."""

from __future__ import annotations

import json
import sys
import time

from robostream.bench.memory import peak_bytes, resident_bytes
from robostream.meta import LeRobotDatasetMetadata


def measure_load(root: str) -> dict[str, float]:
    """Return seconds and bytes of loading and of the fingerprint, in this process."""
    imported_bytes = resident_bytes()
    started_cpu_s, started_s = time.process_time(), time.perf_counter()
    meta = LeRobotDatasetMetadata("bench/meta", root=root)
    loaded_s = time.perf_counter()
    _ = meta.fingerprint  # made when first asked for
    finished_s = time.perf_counter()
    return {
        "load_s": loaded_s - started_s,
        "fingerprint_s": finished_s - loaded_s,
        "cpu_s": time.process_time() - started_cpu_s,
        "kept_bytes": meta.episodes.nbytes,
        "peak_bytes": peak_bytes(),
        # The kernel's two counters lag by some pages, each by others.
        "added_bytes": max(peak_bytes() - imported_bytes, 0),
    }


if __name__ == "__main__":
    print(json.dumps(measure_load(sys.argv[1])))
