# SPDX-License-Identifier: Apache-2.0
"""The loader's threads: groups of items worked on in order, a little ahead."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def map_ordered(
    fn: Callable[[T], U], groups: Iterable[Sequence[T]], *, threads: int, depth: int
) -> Iterator[list[U]]:
    """Yield [fn(item), ...] for each group, in order, working on at most `depth` groups at a time.

    The items of a group are shared out to the threads. The consumer is woken once for a group, not
    for each item: whenever it wakes it takes the interpreter from a working thread. An exception of
    `fn` is raised at the group of the item that caused it. Closing the iterator, or dropping it,
    cancels what has not begun and waits for what has, so no thread outlives it.
    """
    source = iter(groups)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="robostream")
    pending: deque[list[Future[U]]] = deque()

    def submit(count: int) -> None:
        for group in itertools.islice(source, count):
            pending.append([pool.submit(fn, item) for item in group])

    try:
        submit(depth)
        while pending:
            futures = pending.popleft()
            for last in reversed(futures):
                last.exception()
            results = [future.result() for future in futures]
            submit(1)
            yield results
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
