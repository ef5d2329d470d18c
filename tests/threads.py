# SPDX-License-Identifier: Apache-2.0
"""Several threads that do something at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def at_once(count: int, work: Callable[[int], T]) -> list[T]:
    """Return [work(0), work(1), ...], each called by a thread of its own; all begin together."""
    barrier = threading.Barrier(count)

    def begin(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begin, range(count)))
