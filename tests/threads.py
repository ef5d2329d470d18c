# SPDX-License-Identifier: Apache-2.0
"""Several threads that do something at the same time, and a clock for what they do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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


class AwakeClock:
    """Counts the hundredths of a second after which a thread of this process woke up."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_over = threading.Event()

    def run(self) -> None:
        """Count until `stop` is called. Blocks."""
        while not self._is_over.wait(0.01):
            self.seconds += 0.01

    def stop(self) -> None:
        """End the count."""
        self._is_over.set()


@contextmanager
def awake_clock() -> Iterator[AwakeClock]:
    """Yield a clock that runs for the block, but not while other processes keep this one waiting.

    A bound on its seconds holds on an idle machine, and on a busy one too.
    """
    clock = AwakeClock()
    thread = threading.Thread(target=clock.run)
    thread.start()
    try:
        yield clock
    finally:
        clock.stop()
        thread.join()
