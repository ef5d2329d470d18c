# SPDX-License-Identifier: Apache-2.0
"""Reads the datasets of a stream in one process: rows, video files, and bytes fetched ahead."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble import (
    EpisodeRows,
    OpenedDataset,
    RowCache,
    RowLru,
    RowReader,
    SourceLayout,
    find_byte_span,
)
from robostream.batches.lane_lookahead import LaneShare
from robostream.decode import FrameCache, Meter, VideoFile, VideoFiles
from robostream.plan import UpcomingPart
from robostream.storage import LruCache, Traffic

_NOW = np.zeros(1, np.int64)
# Open files of a dataset that several share a process with: videos, and as many data files.
_FILES_PER_SOURCE = 4


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


def prefetch_requests(dataset: OpenedDataset) -> int:
    """Return how many requests fetch bytes of a dataset ahead at a time; 0 without a cache."""
    if not dataset.files.is_remote or dataset.files.cache is None:
        return 0
    return config.PREFETCH_FILE_REQUESTS if dataset.meta.info.is_v2 else config.PREFETCH_REQUESTS


class SourceReader:
    """Reads one dataset. Episodes have their numbers in the stream.

    Attributes:
        layout: How its samples lie in a batch.
        cameras: Its own camera for each camera of a batch; None if it has none.
        offsets: The window of each camera, in frames.
    """

    def __init__(
        self,
        layout: SourceLayout,
        *,
        lru: RowLru,
        frame_cache: FrameCache,
        meter: Meter,
        traffic: Traffic,
        long_requests: threading.Semaphore,
        max_files: int,
    ) -> None:
        dataset, spec = layout.dataset, layout.dataset.spec
        self.layout = layout
        self.cameras = layout.cameras
        opener = dataset.file_opener(traffic)
        self.files = VideoFiles(
            opener.open,
            max_files=max_files,
            index_folder=dataset.index_folder,
            looked_since_s=dataset.opened_at_s,
            meter=meter,
        )
        keys = [None if camera is None else camera.key for camera in layout.cameras]
        self.offsets = [_NOW if key is None else spec.windows.get(key, _NOW) for key in keys]
        self._windows = [(int(offsets.min()), int(offsets.max())) for offsets in self.offsets]
        self._is_video = [key in spec.videos for key in keys]
        # Images in Parquet are read separately: another process may own the rest of their rows.
        plain = [key for key in spec.columns if key not in spec.images]
        self._rows = RowCache(dataset, opener, plain, lru, checks_times=True)
        self._images = {
            key: RowCache(dataset, opener, [key], lru, checks_times=False) for key in spec.images
        }
        self._long_requests = long_requests
        self._opener = opener
        self._frame_cache = frame_cache
        # Finds the rows to fetch ahead.
        self._row_reader = RowReader(dataset, opener, []) if prefetch_requests(dataset) else None
        self._lock = threading.Lock()
        self._fetched: dict[UpcomingPart, list[_FileSpan]] = {}

    def share(self, rows: bool, cameras: list[int]) -> LaneShare:
        """Return what a worker owns that owns the rows of samples, or not, and some cameras."""
        videos = [camera for camera in cameras if self._is_video[camera]]
        others = [camera for camera in cameras if not self._is_video[camera]]
        return LaneShare(rows, videos, others, self._windows)

    def rows(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode, without images."""
        return self._rows.get(episode - self.layout.first_episode)

    def images(self, camera: int, episode: int) -> EpisodeRows:
        """Return the rows of an episode with one camera's images."""
        layout = self.cameras[camera]
        assert layout is not None
        return self._images[layout.key].get(episode - self.layout.first_episode)

    def find_frames(self, camera: int, episode: int) -> tuple[VideoFile, npt.NDArray[np.int64]]:
        """Return a camera's video file of an episode, and the number in it of every frame."""
        layout, own = self.cameras[camera], episode - self.layout.first_episode
        assert layout is not None
        return self.layout.dataset.find_frames(self.files, own, layout.key)

    def fetch(self, coming: UpcomingPart, when: float) -> None:
        """Fetch the bytes of a part of an episode, if there is a cache. Blocks. Thread-safe.

        They stay until the part is released. `when` its first frame is due: see `NextUse`.
        """
        if self._row_reader is None:
            return
        fetched = self._fetched[coming] = []
        for span in self._spans(coming, self._row_reader):
            is_long = span.stop - span.start > config.WHOLE_FILE_BYTES
            with self._long_requests if is_long else nullcontext():
                self._opener.open(span.file).prefetch(span.start, span.stop, when)
            fetched.append(span)

    def release(self, coming: UpcomingPart, when: float) -> None:
        """Release the bytes of a part that was read; `when` it is read next. Thread-safe."""
        for span in self._fetched.pop(coming, ()):
            is_last = span.is_last or (
                span.camera is not None and self._are_cached(coming, span.camera)
            )
            next_use = math.inf if is_last else when
            self._opener.open(span.file).release(span.start, span.stop, next_use)

    def _spans(self, coming: UpcomingPart, reader: RowReader) -> Iterator[_FileSpan]:
        """Open the files of a part; yield what must be read of them."""
        for camera in coming.videos:
            if not self._are_cached(coming, camera):
                file, numbers = self.find_frames(camera, coming.episode)
                offsets = self.offsets[camera]
                span = find_byte_span(file, numbers, coming.first, coming.stop, offsets)
                yield _FileSpan(file.name, *span, camera=camera)
        if coming.rows:
            own = coming.episode - self.layout.first_episode
            # Fetched first, so that no thread waits for a server while it holds the lock.
            footer = _FileSpan(*reader.footer(own))
            yield footer
            if not footer.start:
                return  # the file is so small that this is all of it
            with self._lock:
                rows = reader.find(own)
            yield _FileSpan(rows.file, *rows.groups, is_last=rows.are_shared)

    def _are_cached(self, coming: UpcomingPart, camera: int) -> bool:
        return self._frame_cache.has_all(camera, coming.episode, coming.first, coming.stop)

    def close(self) -> None:
        """Close all files; they open again when they are needed."""
        self.files.clear()
        for rows in (self._rows, *self._images.values()):
            rows.close()


class SourceReaders:
    """The readers of all datasets of a stream, made when they are needed. Thread-safe.

    Of many datasets, the least recently used close their files. All together have at most
    `max_files` videos open, and one memory for rows.
    """

    def __init__(
        self,
        layouts: Sequence[SourceLayout],
        lru: RowLru,
        frame_cache: FrameCache,
        *,
        meter: Meter,
        max_files: int,
    ) -> None:
        self._layouts = layouts
        self._lru = lru
        # Long requests share the bandwidth and hold their bytes in memory, so few run at a time.
        long_requests = threading.Semaphore(config.PREFETCH_REQUESTS)
        self.traffic = Traffic()
        most = max(1, max_files // _FILES_PER_SOURCE) if len(layouts) > 1 else 1
        self._new_reader = partial(
            SourceReader,
            lru=lru,
            frame_cache=frame_cache,
            meter=meter,
            traffic=self.traffic,
            long_requests=long_requests,
            max_files=max(1, max_files // min(most, len(layouts))),
        )
        self._first_episodes = [layout.first_episode for layout in layouts]
        self._all_fit = len(layouts) <= most
        self._readers: dict[int, SourceReader] = {}
        self._active: LruCache[int, SourceReader] = LruCache(most, drop=lambda r: r.close())
        self._lock = threading.RLock()

    def of(self, episode: int) -> SourceReader:
        """Return the reader of an episode."""
        number = bisect_right(self._first_episodes, episode) - 1
        reader = self._readers.get(number)
        if reader is None or not self._all_fit:
            with self._lock:
                reader = self._active.get(number) or self._active.put(number, self._open(number))
        return reader

    def all(self) -> list[SourceReader]:
        """Return the readers made so far."""
        with self._lock:
            return list(self._readers.values())

    def explain(self, error: Exception) -> Exception:
        """Return the error that says why a sample cannot be built; see `VideoFiles.explain`."""
        for reader in self.all():
            error = reader.files.explain(error)
        return error

    def close(self) -> None:
        """Close all files and drop all rows."""
        for reader in self.all():
            reader.close()
        self._lru.clear()

    def _open(self, number: int) -> SourceReader:
        if number not in self._readers:
            self._readers[number] = self._new_reader(self._layouts[number])
        return self._readers[number]
