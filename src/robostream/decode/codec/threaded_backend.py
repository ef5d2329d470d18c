# SPDX-License-Identifier: Apache-2.0
"""Decoding by several threads, for decoders that mostly wait for a device."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from robostream.decode.codec.backend import Backend, Decoded, FileRun

# So many runs for each thread are decoded, or wait to be, before they are asked for.
_RUNS_AHEAD = 2


class ThreadedBackend:
    """Decodes runs side by side, each as a whole. For one thread, which the others work for.

    Args:
        open_session: Returns the backend of one thread. A decoder on a device takes long to open,
            so there are no more of them than threads.
        num_threads: How many threads decode.
        initialize: Called first in each of them.
    """

    def __init__(
        self, open_session: Callable[[], Backend], num_threads: int, initialize: Callable[[], None]
    ) -> None:
        self._open_session = open_session
        self._own = threading.local()
        self._most = _RUNS_AHEAD * num_threads
        self._threads = ThreadPoolExecutor(num_threads, "decode", initialize)

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        jobs: deque[Future[list[Decoded]]] = deque()
        rest = iter(enumerate(file_runs))
        try:
            while True:
                for place, run in rest:
                    jobs.append(self._threads.submit(self._decode, place, run))
                    if len(jobs) > self._most:
                        break
                if not jobs:
                    return
                yield from jobs.popleft().result()
        finally:
            for job in jobs:
                job.cancel()

    def _decode(self, place: int, run: FileRun) -> list[Decoded]:
        if not hasattr(self._own, "session"):
            self._own.session = self._open_session()
        return [(place, number, picture) for _, number, picture in self._own.session.decode([run])]
