# SPDX-License-Identifier: Apache-2.0
"""What one process holds open to build its parts of batches: files, rows, decoders, frames."""

from __future__ import annotations

import math
import threading
from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    BatchLayout,
    EpisodeRows,
    RowCache,
    RowLru,
    RowReader,
    SourceLayout,
    find_byte_span,
    find_frames,
    new_row_lru,
)
from robostream.batches.lane_lookahead import LaneShare
from robostream.decode import (
    Clip,
    ClipUses,
    Clock,
    Deliveries,
    FrameCache,
    FrameDecoder,
    Meter,
    NextUseCache,
    SharedFrameCache,
    SharedFrameLayout,
    Size,
    VideoFile,
    VideoFiles,
    needed_frames,
)
from robostream.device import ByteArray, DeviceRenderer, device_memory, open_nvdec
from robostream.plan import UpcomingPart, WorkerShard
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


class SourceReader:
    """Reads one dataset. Episodes have their numbers in the stream.

    Attributes:
        layout: How its samples lie in a batch.
        cameras: Its own camera for each camera of a batch; None if it has none.
        offsets: The window of each camera, in frames.
        fetches_ahead: Whether there is a cache in which to fetch bytes ahead.
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
        self._windows = [(int(offsets.min()), int(offsets.max())) for offsets in self.offsets]
        self._is_video = [key in spec.videos for key in keys]
        # Images in Parquet are read separately: another process may own the rest of their rows.
        plain = [key for key in spec.columns if key not in spec.images]
        self._rows = RowCache(dataset, opener, plain, lru, checks_times=True)
        self._images = {
            key: RowCache(dataset, opener, [key], lru, checks_times=False) for key in spec.images
        }
        self.fetches_ahead = dataset.files.is_remote and dataset.files.cache is not None
        self._opener = opener
        self._frame_cache = frame_cache
        self._row_reader = RowReader(dataset, opener, [])
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
        return find_frames(self.layout.dataset, self.files, own, layout.key)

    def fetch(self, coming: UpcomingPart, when: float) -> None:
        """Fetch the bytes of a part of an episode, if there is a cache. Blocks. Thread-safe.

        They stay until the part is released. `when` its first frame is due: see `NextUse`.
        """
        if not self.fetches_ahead:
            return
        fetched = self._fetched[coming] = []
        for span in self._spans(coming):
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

    def _spans(self, coming: UpcomingPart) -> Iterator[_FileSpan]:
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
            yield _FileSpan(*self._row_reader.footer(own))
            with self._lock:
                rows = self._row_reader.find(own)
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
        self._shared = lru, frame_cache, meter
        self.traffic = Traffic()
        most = max(1, max_files // _FILES_PER_SOURCE) if len(layouts) > 1 else 1
        self._max_files = max(1, max_files // min(most, len(layouts)))
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


@dataclass(frozen=True, slots=True)
class WorkerBudgets:
    """What one process may use.

    Attributes:
        frame_bytes: Memory for decoded frames; 0 decodes each when it is delivered.
        row_bytes: Memory for the rows of episodes in use, with the images stored in them.
        max_files: Open video files.
        max_decodings: Decoders that wait inside long GOPs.
        runs_ahead: Whether frames are decoded ahead; not if `frame_bytes` is too little for them.
        gpu: The GPU that decodes YUV 4:2:0 frames, such as "cuda:0", and caches them in as many
            bytes of its own memory; None to decode everything on the CPU.
        shared: The layout of the decoded frames that all workers share; None if each has its own.
    """

    frame_bytes: int
    row_bytes: int
    max_files: int
    max_decodings: int
    runs_ahead: bool
    gpu: str | None = None
    shared: SharedFrameLayout | None = None


class WorkerContext:
    """The open files, decoders and caches of a process. For one thread of it.

    Counts into a row of `decode.COUNTERS`. `shared_frames` is the memory of the decoded frames that
    processes share, if they do.

    Attributes:
        keeps_frames: Whether decoded frames are cached at all.
        fetches_ahead: Whether bytes are fetched ahead: if a dataset is remote and has a cache.
        decoders: The decoder of each camera.
    """

    def __init__(
        self,
        layout: BatchLayout,
        shard: WorkerShard,
        budgets: WorkerBudgets,
        *,
        counters: npt.NDArray[np.float64] | None = None,
        shared_frames: ByteArray | None = None,
    ) -> None:
        cameras = layout.cameras
        frame_cache: FrameCache = NextUseCache(budgets.frame_bytes)
        if shared_frames is not None and budgets.shared is not None:
            frame_cache = SharedFrameCache(shared_frames, budgets.shared)
        self.layout = layout
        self.shard = shard
        self.runs_ahead = budgets.runs_ahead
        self.keeps_frames = shared_frames is not None or budgets.frame_bytes > 0
        self.statistics = self._meter = Meter() if counters is None else Meter(row=counters)
        self.sources = SourceReaders(
            layout.sources,
            new_row_lru(budgets.row_bytes),
            frame_cache,
            meter=self._meter,
            max_files=budgets.max_files,
        )
        files = [source.dataset.files for source in layout.sources]
        self.fetches_ahead = any(each.is_remote and each.cache is not None for each in files)
        yuv_sizes = [camera.yuv_size for camera in cameras]
        on_cpu = FrameDecoder(
            frame_cache, self._meter, max_waiting=budgets.max_decodings, yuv_sizes=yuv_sizes
        )
        on_gpu = None if budgets.gpu is None else self._open_gpu(budgets, yuv_sizes)
        self._on_gpu = on_gpu
        self._all_decoders = [on_cpu] if on_gpu is None else [on_gpu, on_cpu]
        self.decoders = [on_gpu if on_gpu and camera.is_yuv else on_cpu for camera in cameras]

    def _open_gpu(self, budgets: WorkerBudgets, yuv_sizes: list[Size | None]) -> FrameDecoder:
        gpu, nbytes = str(budgets.gpu), budgets.frame_bytes
        return FrameDecoder(
            NextUseCache(nbytes, device_memory(nbytes, gpu)),
            self._meter,
            backend=open_nvdec(gpu),
            renderer=DeviceRenderer(),
            yuv_sizes=yuv_sizes,
        )

    def open_clip(self, clock: Clock, camera: int, episode: int, delivered: Deliveries) -> ClipUses:
        """Open the clip of a camera with the frames that the delivered samples need."""
        source, decoder = self.sources.of(episode), self.decoders[camera]
        offsets, layout = source.offsets[camera], source.cameras[camera]
        assert layout is not None
        file, numbers = source.find_frames(camera, episode)
        low, high = source.layout.window_limits(episode, int(delivered.samples[0]), len(numbers))
        first, stop = needed_frames(delivered.samples, offsets, len(numbers))
        first, stop = max(first, low), min(stop, high)
        # A decoder on a GPU takes long to open, so none waits inside a GOP.
        has_long_gops = file.index.has_long_gops and decoder is not self._on_gpu
        clip = Clip(file, numbers[first:stop], camera, episode, first, layout.resize, has_long_gops)
        uses = ClipUses(clip, clock, delivered, offsets)
        decoder.cache.open(uses)
        return uses

    def decode(self, requests: Collection[tuple[ClipUses, list[int]]]) -> None:
        """Decode frames of clips; each clip may be named once."""
        if self._on_gpu is None:
            self._all_decoders[0].decode(requests)
            return
        for decoder in self._all_decoders:
            decoder.decode([r for r in requests if self.decoders[r[0].clip.camera] is decoder])

    def close_clip(self, uses: ClipUses) -> None:
        """Drop the cached frames and the waiting decoder of a clip."""
        self.decoders[uses.clip.camera].close(uses)

    def end_batch(self) -> None:
        """Drop the decoded frames that are not cached, and count what was done."""
        for decoder in self._all_decoders:
            decoder.end_batch()
        self._meter.flush(self.sources.traffic.take())

    def count(self) -> None:
        """Add the counts since the last call to the shared counters."""
        self._meter.flush(self.sources.traffic.take())

    def count_busy(self, seconds: float) -> None:
        """Count time spent on building batches, whatever it was spent on."""
        self._meter.busy_s += seconds

    def count_images(self, images: int) -> None:
        """Count images that were read from Parquet."""
        self._meter.images_delivered += images
        self._meter.images_decoded += images

    def close(self) -> None:
        """Close all files and drop all rows."""
        self.sources.close()
