# SPDX-License-Identifier: Apache-2.0
"""Keeping an encoder's threads from pushing everything else off the cores.

Where root runs it, SVT-AV1 gives its threads, and the one that opens it, the highest real-time
priority there is. Processes that this thread starts would inherit it. A robot that records would
not be controlled any more while pictures are encoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_TASKS = "/proc/self/task"


@contextmanager
def ordinary_threads() -> Iterator[None]:
    """Open an encoder in this block; afterwards no thread has a priority it did not have before."""
    if os.geteuid() != 0 or not os.path.isdir(_TASKS):
        yield  # only root may raise a priority, and only Linux lists the threads
        return
    before = _policies()
    try:
        yield
    finally:
        for thread, policy in _policies().items():
            if policy in (os.SCHED_FIFO, os.SCHED_RR) and before.get(thread) != policy:
                with suppress(ProcessLookupError):
                    os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))


def _policies() -> dict[int, int]:
    """Return the scheduling policy of each thread of this process."""
    found: dict[int, int] = {}
    for name in os.listdir(_TASKS):
        with suppress(ProcessLookupError):
            found[int(name)] = os.sched_getscheduler(int(name))
    return found
