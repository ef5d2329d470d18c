# SPDX-License-Identifier: Apache-2.0
"""The only file that starts threads: apply a function to many items, in order, a little ahead."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
U = TypeVar("U")


def map_ordered(
    fn: Callable[[T], U], items: Iterable[T], *, threads: int, depth: int
) -> Iterator[U]:
    """Yield `fn(item)` in the order of the items, working on at most `depth` items at a time.

    An exception of `fn` is raised at the item that caused it. Closing the iterator, or dropping it,
    cancels what has not begun and waits for what has, so no thread outlives it.
    """
    source = iter(items)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="robostream")
    pending: deque[Future[U]] = deque()
    try:
        pending.extend(pool.submit(fn, item) for item in itertools.islice(source, depth))
        while pending:
            result = pending.popleft().result()
            pending.extend(pool.submit(fn, item) for item in itertools.islice(source, 1))
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
