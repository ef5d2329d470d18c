# SPDX-License-Identifier: Apache-2.0
"""Run a measurement in a process of its own; measure the memory of processes.

python -m robostream.bench.processes MODULE:FUNCTION < ARGUMENTS

The process reads the arguments as one line of JSON, calls the function and prints its result as one
line of JSON. If the function is a generator, the process prints each item and waits for another
line before it continues.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from robostream.errors import RobostreamError

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EVERY_S = 0.5
# Reading PSS makes the kernel walk all pages, so it is sampled less often than RSS.
_SAMPLES_PER_PSS = 4


class MeasurementError(RobostreamError):
    """A measuring process failed.

    Attributes:
        reason: The last line that it wrote to standard error.
    """

    def __init__(self, function: str, text: str) -> None:
        self.reason = text.strip().splitlines()[-1] if text.strip() else "no message"
        super().__init__(f"{function} failed: {text.strip() or self.reason}")


def run_process(
    function: Callable[..., Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Return the result of a function of a module, called in a new process. Blocks.

    Args:
        function: The function; its arguments and result are JSON values.
        environment: Variables beyond those of this process.
        timeout_s: When to stop waiting; None waits forever.
        arguments: Keyword arguments of the function.
    """
    name = _target(function)
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__, name],
            input=json.dumps(arguments) + "\n",
            env={**os.environ, **(environment or {})},
            timeout=timeout_s,
            capture_output=True,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(name, f"not done after {timeout_s:g} s") from error
    if done.returncode != 0:
        raise MeasurementError(name, done.stderr or f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def iterate_process(
    function: Callable[..., Iterator[Any]],
    *,
    environment: Mapping[str, str] | None = None,
    **arguments: Any,
) -> Iterator[Any]:
    """Yield the items of a generator that runs in a new process; it pauses after each item."""
    with subprocess.Popen(
        [sys.executable, "-m", __name__, _target(function)],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(arguments) + "\n")
        process.stdin.flush()
        while line := process.stdout.readline():
            yield json.loads(line)
            process.stdin.write("\n")
            process.stdin.flush()
    if process.returncode != 0:
        raise MeasurementError(_target(function), "see its message above")


def _target(function: Callable[..., Any]) -> str:
    return f"{function.__module__}:{function.__name__}"


def main(target: str) -> None:
    """Call the function, print its result and exit."""
    arguments = json.loads(sys.stdin.readline())
    module, _, name = target.partition(":")
    result = getattr(importlib.import_module(module), name)(**arguments)
    is_generator = isinstance(result, Iterator)
    for item in result if is_generator else (result,):
        print(json.dumps(item), flush=True)
        if is_generator and not sys.stdin.readline():
            break
    # The workers of some loaders take long to stop. All figures are printed, so skip the wait.
    os._exit(0)


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _own_bytes("VmRSS")


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    return _own_bytes("VmHWM")


def tree_bytes() -> int:
    """Return the memory of this process and its descendants, shared pages counted once (PSS)."""
    return sum(_read_bytes(process, "smaps_rollup", "Pss") for process in _tree(os.getpid()))


def tree_resident_bytes() -> int:
    """Return the same with shared pages counted in each process (RSS)."""
    return sum(_read_bytes(process, "status", "VmRSS") for process in _tree(os.getpid()))


def touch_memory(nbytes: int) -> float:
    """Allocate memory, write to each page and free it; return the bytes written per second.

    A virtual machine may have returned unused memory to its host; the first write to such a page
    waits for it.
    """
    import numpy as np  # measuring processes start faster without it

    memory = mmap.mmap(-1, max(nbytes, _PAGE_BYTES), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without large pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    pages = np.frombuffer(memory, np.uint8)[::_PAGE_BYTES]
    began = time.perf_counter()
    pages[:] = 1
    seconds = time.perf_counter() - began
    del pages
    memory.close()
    return nbytes / seconds


class MemorySampler:
    """Samples the memory of this process and its descendants twice a second while it is open.

    Attributes:
        rss: (seconds since the start, bytes); shared pages counted in each process.
        pss: The same with shared pages counted once, sampled less often.
    """

    def __init__(self) -> None:
        self.rss: list[tuple[float, int]] = []
        self.pss: list[tuple[float, int]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="memory sampler", daemon=True)

    def __enter__(self) -> MemorySampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        began = time.perf_counter()
        is_done = False
        while not is_done:
            is_done = self._done.wait(_EVERY_S if self.rss else 0)
            now = time.perf_counter() - began
            if is_done or len(self.rss) % _SAMPLES_PER_PSS == 0:
                self.pss.append((now, tree_bytes()))
            self.rss.append((now, tree_resident_bytes()))


def _tree(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _tree(int(child)))]


def _own_bytes(field: str) -> int:
    found = _read_bytes(os.getpid(), "status", field)
    if not found:
        raise OSError(f"/proc/self/status has no {field}; memory can be measured on Linux only")
    return found


def _read_bytes(process: int, file: str, field: str) -> int:
    """Return a field of a file in /proc; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


if __name__ == "__main__":
    main(sys.argv[1])
