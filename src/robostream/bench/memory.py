# SPDX-License-Identifier: Apache-2.0
"""The memory of this process and its descendants, from /proc."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_EVERY_S = 0.5
# Reading PSS makes the kernel walk all pages, so it is sampled less often than RSS.
_SAMPLES_PER_PSS = 4


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return _status("VmRSS")


def peak_bytes() -> int:
    """Return the peak resident memory of this process."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    return _status("VmHWM")


def tree_bytes() -> int:
    """Return the memory of this process and its descendants, shared pages counted once (PSS)."""
    return sum(_pss(process) for process in _tree(os.getpid()))


def tree_resident_bytes() -> int:
    """Return the same with shared pages counted in each process (RSS)."""
    return sum(_resident(process) for process in _tree(os.getpid()))


def touch_memory(nbytes: int) -> float:
    """Allocate memory, write to each page and free it; return the bytes written per second.

    A virtual machine may have returned unused memory to its host; the first write to such a page
    waits for it.
    """
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


@dataclass(slots=True)
class MemorySampler:
    """Samples the memory of this process and its descendants twice a second while it is open.

    Attributes:
        rss: (seconds since the start, bytes); shared pages counted in each process.
        pss: The same with shared pages counted once, sampled less often.
    """

    rss: list[tuple[float, int]] = field(default_factory=list)
    pss: list[tuple[float, int]] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> MemorySampler:
        self._thread = threading.Thread(target=self._sample, name="memory sampler", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        assert self._thread is not None
        self._thread.join()

    def _sample(self) -> None:
        began = time.perf_counter()
        count = 0
        while True:
            over = self._done.wait(_EVERY_S if count else 0)
            now = time.perf_counter() - began
            self.rss.append((now, tree_resident_bytes()))
            if over or count % _SAMPLES_PER_PSS == 0:
                self.pss.append((now, tree_bytes()))
            count += 1
            if over:
                return


def _tree(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _tree(int(child)))]


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _pss(process: int) -> int:
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
