# SPDX-License-Identifier: Apache-2.0
"""The open files and rows of the datasets that one process reads."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    EpisodeRows,
    RowCache,
    RowLru,
    SourceLayout,
    find_frames,
)
from robostream.batches.prefetch import PartFetcher
from robostream.decode import FrameCache, Meter, VideoFile, VideoFiles
from robostream.plan import UpcomingPart
from robostream.storage import LruCache, Traffic

_NOW = np.zeros(1, np.int64)
# Open files of a dataset that several share a process with: videos, and as many data files.
_FILES_PER_SOURCE = 4


class SourceReader:
    """Reads one dataset. Episodes have their numbers in the stream.

    Args:
        layout: How its samples lie in a batch.
        lru: The memory for rows, shared by all datasets.
        frame_cache: The cache of decoded frames.
        meter: Counts files, and the time that reads take.
        traffic: Counts the requests of its files.
        max_files: How many video files are open at most.

    Attributes:
        layout: How its samples lie in a batch.
        cameras: Its own camera for each camera of a batch; None if it has none.
        offsets: The window of each camera, in frames.
        offset_lists: The same as lists.
        windows: The least and the greatest offset of each camera.
        is_video: Whether each camera is stored as video here.
        fetcher: Fetches bytes ahead; None where there is no cache for them.
    """

    def __init__(
        self,
        layout: SourceLayout,
        lru: RowLru,
        frame_cache: FrameCache,
        *,
        meter: Meter,
        traffic: Traffic,
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
        self.offset_lists: list[list[int]] = [offsets.tolist() for offsets in self.offsets]
        self.windows = [(int(offsets.min()), int(offsets.max())) for offsets in self.offsets]
        self.is_video = [key in spec.videos for key in keys]
        # Images in Parquet are read separately: another process may own the rest of their rows.
        plain = [key for key in spec.columns if key not in spec.images]
        self._rows = RowCache(dataset, opener, plain, lru, checks_times=True)
        self._images = {
            key: RowCache(dataset, opener, [key], lru, checks_times=False) for key in spec.images
        }
        self.fetcher: PartFetcher | None = None
        if dataset.files.is_remote and dataset.files.cache is not None:
            self.fetcher = PartFetcher(
                layout, opener, self.offsets, files=self.files, frame_cache=frame_cache
            )

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
        return find_frames(self.layout.dataset, self.files, own, layout.key)

    def close(self) -> None:
        """Close all files; they open again when they are needed."""
        self.files.clear()
        for rows in (self._rows, *self._images.values()):
            rows.close()


class SourceReaders:
    """The readers of all datasets of a stream, made when they are needed. Thread-safe.

    Of many datasets, the least recently used close their files.

    Args:
        layouts: How the samples of each dataset lie in a batch.
        lru: The memory for rows.
        frame_cache: The cache of decoded frames.
        meter: Counts files, and the time that reads take.
        max_files: How many video files are open at most.

    Attributes:
        traffic: Counts the requests of all datasets.
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
        self._shared = lru, frame_cache, meter
        self.traffic = Traffic()
        most = max(1, max_files // _FILES_PER_SOURCE) if len(layouts) > 1 else 1
        self._max_files = max(1, max_files // min(most, len(layouts)))
        self._first_episodes = [layout.first_episode for layout in layouts]
        self._all_fit = len(layouts) <= most
        self._readers: dict[int, SourceReader] = {}
        self._active: LruCache[int, SourceReader] = LruCache(most, drop=lambda r: r.close())
        self._lock = threading.RLock()
        self._only = self._open(0) if len(layouts) == 1 else None

    def of(self, episode: int) -> SourceReader:
        """Return the reader of an episode."""
        if self._only is not None:
            return self._only
        number = bisect_right(self._first_episodes, episode) - 1
        if self._all_fit and number in self._readers:
            return self._readers[number]
        with self._lock:
            return self._active.get(number) or self._active.put(number, self._open(number))

    def all(self) -> list[SourceReader]:
        """Return the readers made so far."""
        with self._lock:
            return list(self._readers.values())

    def fetch(self, coming: UpcomingPart, when: float) -> None:
        """Fetch the bytes of a part of an episode; see `PartFetcher.fetch`."""
        fetcher = self.of(coming.episode).fetcher
        if fetcher is not None:
            fetcher.fetch(coming, when)

    def release(self, coming: UpcomingPart, when: float) -> None:
        """Release the bytes of a part that was read; see `PartFetcher.release`."""
        fetcher = self.of(coming.episode).fetcher
        if fetcher is not None:
            fetcher.release(coming, when)

    def explain(self, error: Exception) -> Exception:
        """Return the error that says why a sample cannot be built; see `VideoFiles.explain`."""
        for reader in self.all():
            error = reader.files.explain(error)
        return error

    def close(self) -> None:
        """Close all files and drop all rows."""
        for reader in self.all():
            reader.close()
        self._shared[0].clear()

    def _open(self, number: int) -> SourceReader:
        if number not in self._readers:
            lru, frame_cache, meter = self._shared
            self._readers[number] = SourceReader(
                self._layouts[number],
                lru,
                frame_cache,
                meter=meter,
                traffic=self.traffic,
                max_files=self._max_files,
            )
        return self._readers[number]
