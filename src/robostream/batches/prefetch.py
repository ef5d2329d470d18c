# SPDX-License-Identifier: Apache-2.0
"""Bytes of coming episodes, fetched before the first of their frames is due.

A few threads fetch what the lanes of a process come to next, the most urgent first. They bring it
to the cache on the local disk; whoever decodes finds it there, and waits only where the link is too
slow.
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

from robostream import config
from robostream.plan import UpcomingPart

logger = logging.getLogger(__name__)

# Pieces of each lane that are fetched beyond those that are being decoded.
_PIECES_AHEAD = 2
_STOP = -1


class Prefetcher:
    """Has what lanes come to next fetched by threads; ends with its owner.

    Args:
        owner: Whose death ends the threads.
        lanes: For each lane, what it comes to, in the order of the line.
        fetch: Brings the bytes of one part close by. Thread-safe.
        release: Says that a part is read and its bytes are not needed for now. Thread-safe.
        frames_per_step: How many frames of a lane leave with each step.
        margin: How many frames before they leave pictures are decoded.
    """

    def __init__(
        self,
        owner: object,
        lanes: Sequence[Iterator[UpcomingPart]],
        fetch: Callable[[UpcomingPart], None],
        release: Callable[[UpcomingPart], None],
        *,
        frames_per_step: float,
        margin: int,
    ) -> None:
        self._lanes = [_Lookahead(lane) for lane in lanes]
        self._fetch = fetch
        self._release = release
        self._in_use: list[tuple[int, int, UpcomingPart]] = []
        self._frames_per_step = frames_per_step
        self._margin = margin
        self._numbers = itertools.count()
        self._queue: _Queue = PriorityQueue()
        for _ in range(config.PREFETCH_REQUESTS):
            threading.Thread(target=_work, args=(self._queue,), daemon=True).start()
        self._end = weakref.finalize(owner, _end, self._queue)
        self.advance(0)

    def advance(self, step: int) -> None:
        """Have fetched what is soon due after a step, and released what is due no more."""
        reached = int(step * self._frames_per_step) + self._margin
        for lane in self._lanes:
            for coming in lane.take(reached, _PIECES_AHEAD):
                self._put(coming, self._fetch)
                heapq.heappush(self._in_use, (coming.last_step, next(self._numbers), coming))
        while self._in_use and self._in_use[0][0] < step:
            self._put(heapq.heappop(self._in_use)[-1], self._release)

    def close(self) -> None:
        """Release all parts, and let the threads end; what they have begun they finish."""
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


class _Lookahead:
    """What a lane comes to, taken as far as it is soon needed."""

    def __init__(self, pieces: Iterator[UpcomingPart]) -> None:
        self._pieces = pieces
        self._beyond: list[int] = []

    def take(self, reached: int, beyond: int) -> Iterator[UpcomingPart]:
        """Yield what begins before `reached`, and so many pieces more; each once."""
        self._beyond = [at for at in self._beyond if at > reached]
        while len(self._beyond) < beyond:
            piece = next(self._pieces, None)
            if piece is None:
                return
            if piece.at > reached:
                self._beyond.append(piece.at)
            yield piece


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
        # Whoever needs these bytes meets the error again, and says whom it concerns.
        logger.debug("episode %d is not fetched ahead: %s", coming.episode, error)


def _end(queue: _Queue) -> None:
    for number in range(config.PREFETCH_REQUESTS):
        queue.put((_STOP, number, None))
