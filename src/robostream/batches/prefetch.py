# SPDX-License-Identifier: Apache-2.0
"""Fetches the bytes of coming episodes before the first of their frames is due.

A few threads fetch what the lanes of a process come to next, the most urgent first, into the cache
on the local disk. The decoder finds it there, and waits only where the link is too slow.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import math
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from queue import Empty, PriorityQueue
from typing import NamedTuple

from robostream import config
from robostream.assemble import (
    Offsets,
    RowReader,
    SourceLayout,
    find_byte_span,
    find_frames,
)
from robostream.decode import FrameCache, VideoFiles
from robostream.plan import UpcomingPart
from robostream.storage import FileOpener

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
        self._lanes = [_LaneQueue(lane) for lane in lanes]
        self._fetch = fetch
        self._release = release
        self._in_use: list[tuple[int, int, UpcomingPart]] = []
        self._frames_per_step = frames_per_step
        self._margin = margin
        self._numbers = itertools.count()
        self._queue: _Queue = PriorityQueue()
        self._end = weakref.finalize(owner, _end, self._queue, requests)
        # Before the threads start: they would begin with the lane that is queued first.
        self.advance(0)
        for _ in range(requests):
            threading.Thread(target=_work, args=(self._queue,), daemon=True).start()

    def advance(self, step: int) -> None:
        """Queue what is due soon after a step, and the release of what is not due any more."""
        reached = int(step * self._frames_per_step) + self._margin
        for lane in self._lanes:
            for coming in lane.take(reached, _PARTS_AHEAD):
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


class _LaneQueue:
    """The coming parts of a lane, taken as far as they are needed soon."""

    def __init__(self, parts: Iterator[UpcomingPart]) -> None:
        self._parts = parts
        self._beyond: list[int] = []

    def take(self, reached: int, beyond: int) -> Iterator[UpcomingPart]:
        """Yield the parts that begin before `reached`, and so many more; each once."""
        self._beyond = [at for at in self._beyond if at > reached]
        while len(self._beyond) < beyond:
            part = next(self._parts, None)
            if part is None:
                return
            if part.at > reached:
                self._beyond.append(part.at)
            yield part


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


class _FileSpan(NamedTuple):
    """Bytes [start, stop) of a file.

    Attributes:
        camera: The camera whose frames they hold; None for rows.
        is_last: Whether they are not read again, because all processes share their content.
    """

    file: str
    start: int
    stop: int
    camera: int | None = None
    is_last: bool = False


class PartFetcher:
    """Fetches the bytes of parts of episodes from a remote dataset to the local cache. Thread-safe.

    Args:
        layout: The dataset, as its samples lie in a batch.
        opener: Opens its files.
        offsets: The window of each camera.
        files: Its video files.
        frame_cache: The cache of decoded frames; those in it need no bytes.
    """

    def __init__(
        self,
        layout: SourceLayout,
        opener: FileOpener,
        offsets: Sequence[Offsets],
        *,
        files: VideoFiles,
        frame_cache: FrameCache,
    ) -> None:
        self._layout = layout
        self._opener = opener
        self._offsets = offsets
        self._frame_cache = frame_cache
        self._files = files
        self._rows = RowReader(layout.dataset, opener, [])
        self._lock = threading.Lock()
        # Long requests share the bandwidth and hold their bytes in memory, so few run at a time.
        self._long_requests = threading.Semaphore(config.PREFETCH_REQUESTS)
        self._fetched: dict[UpcomingPart, list[_FileSpan]] = {}

    def fetch(self, coming: UpcomingPart, when: float) -> None:
        """Fetch the bytes of a part of an episode; they stay until it is released. Blocks.

        Args:
            coming: The part.
            when: When its first frame is due, as `NextUse` counts.
        """
        fetched = self._fetched[coming] = []
        for span in self._spans(coming):
            is_long = span.stop - span.start > config.WHOLE_FILE_BYTES
            with self._long_requests if is_long else nullcontext():
                self._opener.open(span.file).prefetch(span.start, span.stop, when)
            fetched.append(span)

    def release(self, coming: UpcomingPart, when: float) -> None:
        """Release the bytes of a part that was read. Asks no server.

        Args:
            coming: The part.
            when: When it is read next.
        """
        for span in self._fetched.pop(coming, ()):
            is_last = span.is_last or (
                span.camera is not None and self._are_cached(coming, span.camera)
            )
            next_use = math.inf if is_last else when
            self._opener.open(span.file).release(span.start, span.stop, next_use)

    def _spans(self, coming: UpcomingPart) -> Iterator[_FileSpan]:
        """Open the files of a part; yield what must be read of them."""
        for camera in coming.videos:
            if not self._are_cached(coming, camera):
                yield self._frames(coming, camera)
        if coming.rows:
            own = coming.episode - self._layout.first_episode
            # Fetched first, so that no thread waits for a server while it holds the lock.
            footer = _FileSpan(*self._rows.footer(own))
            yield footer
            if not footer.start:
                return  # the file is so small that this is all of it
            with self._lock:
                rows = self._rows.find(own)
            yield _FileSpan(rows.file, *rows.groups, is_last=rows.are_shared)

    def _are_cached(self, coming: UpcomingPart, camera: int) -> bool:
        return self._frame_cache.has_all(camera, coming.episode, coming.first, coming.stop)

    def _frames(self, coming: UpcomingPart, camera: int) -> _FileSpan:
        """Return the bytes of a camera's frames."""
        layout, part = self._layout.cameras[camera], (coming.first, coming.stop)
        assert layout is not None
        own = coming.episode - self._layout.first_episode
        file, numbers = find_frames(self._layout.dataset, self._files, own, layout.key)
        span = find_byte_span(file, numbers, *part, self._offsets[camera])
        return _FileSpan(file.name, *span, camera=camera)
