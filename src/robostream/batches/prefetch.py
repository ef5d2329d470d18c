# SPDX-License-Identifier: Apache-2.0
"""Fetches the bytes of coming episodes before the first of their frames is due.

A few threads fetch what the lanes of a process come to next, the most urgent first, into the cache
on the local disk. The decoder finds it there, and waits only where the link is too slow.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from queue import Empty, PriorityQueue

from robostream.plan import UpcomingPart

logger = logging.getLogger(__name__)

# Parts of each lane that are fetched beyond those that are being decoded.
_PARTS_AHEAD = 2
_STOP = -1


class Prefetcher:
    """Lets threads fetch what lanes come to next; ends with its owner.

    Args:
        owner: The threads end when it is garbage-collected.
        lanes: For each lane, what it comes to, in the order of the line.
        fetch: Fetches the bytes of one part. Thread-safe.
        release: Releases the bytes of a part that was read. Thread-safe.
        requests: How many parts are fetched at a time.
        frames_per_step: How many frames of a lane leave with each step.
        margin: How many frames before they leave frames are decoded.
    """

    def __init__(
        self,
        owner: object,
        lanes: Sequence[Iterator[UpcomingPart]],
        fetch: Callable[[UpcomingPart], None],
        release: Callable[[UpcomingPart], None],
        *,
        requests: int,
        frames_per_step: float,
        margin: int,
    ) -> None:
        # Of each lane: what it comes to, and where those begin that are fetched ahead of need.
        self._lanes: list[tuple[Iterator[UpcomingPart], list[int]]] = [(lane, []) for lane in lanes]
        self._fetch = fetch
        self._release = release
        self._in_use: list[tuple[int, int, UpcomingPart]] = []
        self._frames_per_step = frames_per_step
        self._margin = margin
        self._numbers = itertools.count()
        self._queue: _Queue = PriorityQueue()
        self._end = weakref.finalize(owner, _end, self._queue, requests)
        # Before the threads start: they would begin with the lane that is queued first.
        self.advance(0, 0)
        for _ in range(requests):
            threading.Thread(target=_work, args=(self._queue,), daemon=True).start()

    def advance(self, step: int, decoded_step: int) -> None:
        """Queue what is due soon after the step to be decoded, and the release of what is not due.

        `step` is the one to be built next: what is due before it is not read again.
        """
        reached = int(decoded_step * self._frames_per_step) + self._margin
        for lane, beyond in self._lanes:
            beyond[:] = [at for at in beyond if at > reached]
            while len(beyond) < _PARTS_AHEAD and (coming := next(lane, None)) is not None:
                if coming.at > reached:
                    beyond.append(coming.at)
                self._put(coming, self._fetch)
                heapq.heappush(self._in_use, (coming.last_step, next(self._numbers), coming))
        while self._in_use and self._in_use[0][0] < step:
            self._put(heapq.heappop(self._in_use)[-1], self._release)

    def close(self) -> None:
        """Release all parts and end the threads, which finish what they have begun."""
        left = [(self._release, coming) for *_, coming in self._in_use]
        with suppress(Empty):
            while (job := self._queue.get_nowait()[-1]) is not None:
                left.append(job)
        self._end()
        self._in_use.clear()
        for work, coming in left:
            if work is self._release:
                _do(work, coming)

    def _put(self, coming: UpcomingPart, work: Callable[[UpcomingPart], None]) -> None:
        self._queue.put((coming.step, next(self._numbers), (work, coming)))


_Job = tuple[Callable[[UpcomingPart], None], UpcomingPart]
_Queue = PriorityQueue[tuple[int, int, _Job | None]]


def _work(queue: _Queue) -> None:
    while True:
        _, _, job = queue.get()
        if job is None:
            return
        _do(*job)


def _do(work: Callable[[UpcomingPart], None], coming: UpcomingPart) -> None:
    try:
        work(coming)
    except Exception as error:
        # The reader of these bytes meets the error again, and names the sample.
        logger.debug("episode %d is not prefetched: %s", coming.episode, error)


def _end(queue: _Queue, threads: int) -> None:
    for number in range(threads):
        queue.put((_STOP, number, None))
