# SPDX-License-Identifier: Apache-2.0
"""Decoding by several threads, for decoders that mostly wait for a device."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from robostream.decode.codec.backend import Backend, Decoded, FileRun
from robostream.decode.picture.decoded import DecodedPicture

# So many pictures of a run are decoded before they are asked for.
_PICTURES_AHEAD = 8


class ThreadedBackend:
    """Decodes runs side by side, a few pictures of each at a time, before they are asked for.

    For one thread, which the others work for.

    Args:
        open_session: Returns a backend for one run at a time; it is used again for later ones.
        num_threads: How many threads decode.
        initialize: Called first in each of them.
    """

    def __init__(
        self, open_session: Callable[[], Backend], num_threads: int, initialize: Callable[[], None]
    ) -> None:
        self._open_session = open_session
        self._threads = ThreadPoolExecutor(num_threads, "decode", initialize)
        self._idle: list[Backend] = []

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        decodings = [_Decoding(self._threads, self._session(), run) for run in file_runs]
        try:
            for place, decoding in enumerate(decodings):
                for number, picture in decoding:
                    yield place, number, picture
        finally:
            for decoding in decodings:
                decoding.close()
                self._idle.append(decoding.session)

    def _session(self) -> Backend:
        return self._idle.pop() if self._idle else self._open_session()


class _Decoding(Iterator[tuple[int, DecodedPicture | None]]):
    """The frames of one run, which other threads decode a few at a time."""

    def __init__(self, threads: ThreadPoolExecutor, session: Backend, run: FileRun) -> None:
        self.session = session
        self._threads = threads
        self._frames = session.decode([run])
        self._ready: deque[tuple[int, DecodedPicture | None]] = deque()
        self._has_more = True
        self._job: Future[None] | None = threads.submit(self._work)

    def __next__(self) -> tuple[int, DecodedPicture | None]:
        while True:
            if self._job is not None and (not self._ready or self._job.done()):
                job, self._job = self._job, None
                job.result()
            if self._job is None and self._has_more and len(self._ready) <= _PICTURES_AHEAD // 2:
                self._job = self._threads.submit(self._work)
            if self._ready:
                return self._ready.popleft()
            if self._job is None:
                raise StopIteration

    def close(self) -> None:
        """Wait for the thread that works for it, if one does, and forget the rest."""
        job, self._job = self._job, None
        if job is not None and not job.cancel():
            job.exception()
        self._frames.close()  # type: ignore[attr-defined]  # a generator, which returns its decoder

    def _work(self) -> None:
        for _ in range(_PICTURES_AHEAD):
            found = next(self._frames, None)
            if found is None:
                self._has_more = False
                return
            self._ready.append(found[1:])
