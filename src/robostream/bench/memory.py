# SPDX-License-Identifier: Apache-2.0
"""The memory of this process and those it started, as Linux counts it."""

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
# The kernel walks through all pages to tell how many processes share each. So this is asked for
# once in so many looks only.
_LOOKS_PER_PSS = 4


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


def tree_resident_bytes() -> int:
    """Return the same with pages counted as often as processes share them, as most tools do."""
    return sum(_resident(process) for process in _below(os.getpid()))


def touch_memory(nbytes: int) -> float:
    """Take so much memory, write to each page of it, and let it go; return the bytes per second.

    A virtual machine may have given memory that nobody uses back to its host, and the first to
    write there waits for it.
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
class MemoryWatch:
    """Looks at the memory of this process and all below it every half second, while it is open.

    Attributes:
        rss: (seconds since it was opened, bytes); each process counts the pages it shares.
        pss: The same with shared pages counted once, looked at less often.
    """

    rss: list[tuple[float, int]] = field(default_factory=list)
    pss: list[tuple[float, int]] = field(default_factory=list)
    _done: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> MemoryWatch:
        self._thread = threading.Thread(target=self._watch, name="memory watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        assert self._thread is not None
        self._thread.join()

    def _watch(self) -> None:
        began = time.perf_counter()
        looks = 0
        while True:
            over = self._done.wait(_EVERY_S if looks else 0)
            now = time.perf_counter() - began
            self.rss.append((now, tree_resident_bytes()))
            if over or looks % _LOOKS_PER_PSS == 0:
                self.pss.append((now, tree_bytes()))
            looks += 1
            if over:
                return


def _below(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _below(int(child)))]


def _resident(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


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
