# SPDX-License-Identifier: Apache-2.0
"""Run a measurement in a process of its own; measure the memory of processes.

Such a process calls `main`, which reads a pickled function and its arguments, calls it and prints
its result as a line of JSON.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from robostream.errors import RobostreamError

_EVERY_S = 0.5
# Reading PSS makes the kernel walk all pages, so it is sampled less often than RSS.
_SAMPLES_PER_PSS = 4
_MOST_POINTS = 240


class MeasurementError(RobostreamError):
    """A measuring process failed; `reason` is the last line of its standard error."""

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        self.reason = text.strip().splitlines()[-1] if text.strip() else "no message"
        super().__init__(f"{function.__name__} failed: {text.strip() or self.reason}")


def run_process(
    function: Callable[..., Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Return the result of a function, a JSON value, called in a new process. Blocks.

    The process has the variables of this one and those of `environment`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from robostream.bench.processes import main; main()"],
            input=pickle.dumps((function, arguments)),
            env={**os.environ, **(environment or {})},
            timeout=timeout_s,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(function, f"not done after {timeout_s:g} s") from error
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace")
        raise MeasurementError(function, text or f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Call the function, print its result and exit."""
    function, arguments = pickle.load(sys.stdin.buffer)
    print(json.dumps(function(**arguments)), flush=True)
    # The workers of some loaders take long to stop. All figures are printed, so skip the wait.
    os._exit(0)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _own_bytes("VmRSS")


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    return _own_bytes("VmHWM")


def tree_bytes(*, shared_once: bool = True) -> int:
    """Return the memory of this process and its descendants.

    Shared pages are counted once (PSS), or in each process (RSS).
    """
    file, name = ("smaps_rollup", "Pss") if shared_once else ("status", "VmRSS")
    return sum(_read_bytes(process, file, name) for process in _tree(os.getpid()))


def touch_memory(nbytes: int) -> float:
    """Allocate memory, write to each page and free it; return the bytes written per second.

    A virtual machine may have returned unused memory to its host; the first write to such a page
    waits for it.
    """
    import numpy as np  # measuring processes start faster without it

    began = time.perf_counter()
    np.empty(nbytes + 1, np.uint8)[:: os.sysconf("SC_PAGE_SIZE")] = 1
    return nbytes / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class MemoryCurves:
    """The memory of this process and its descendants, as (seconds since the start, bytes)."""

    rss: list[tuple[float, int]] = field(default_factory=list)  # shared pages in each process
    pss: list[tuple[float, int]] = field(default_factory=list)  # shared pages once; fewer samples

    def figures(self) -> dict[str, Any]:
        """Return the peaks in GB, and a limited number of points as [seconds, GB]."""
        found: dict[str, Any] = {}
        for kind, points in (("rss", self.rss), ("pss", self.pss)):
            thin = points[:: -(-len(points) // _MOST_POINTS)]
            found[f"peak_{kind}_gb"] = max(size for _, size in points) / 1e9
            found[f"{kind}_gb_over_time"] = [[round(at, 1), round(b / 1e9, 3)] for at, b in thin]
        return found


@contextmanager
def sample_memory() -> Iterator[MemoryCurves]:
    """Sample the memory twice a second during the block, and at its end."""
    curves, done, began = MemoryCurves(), threading.Event(), time.perf_counter()

    def sample() -> None:
        is_done = False
        while not is_done:
            is_done = done.wait(_EVERY_S if curves.rss else 0)
            now = time.perf_counter() - began
            if is_done or len(curves.rss) % _SAMPLES_PER_PSS == 0:
                curves.pss.append((now, tree_bytes()))
            curves.rss.append((now, tree_bytes(shared_once=False)))

    thread = threading.Thread(target=sample, name="memory sampler", daemon=True)
    thread.start()
    try:
        yield curves
    finally:
        done.set()
        thread.join()


def _tree(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _tree(int(child)))]


def _own_bytes(name: str) -> int:
    found = _read_bytes(os.getpid(), "status", name)
    if not found:
        raise OSError(f"/proc/self/status has no {name}; memory can be measured on Linux only")
    return found


def _read_bytes(process: int, file: str, name: str) -> int:
    """Return a field of a file in /proc; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))
