# SPDX-License-Identifier: Apache-2.0
"""What one process holds open to build its parts of batches: readers, decoders, frames."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.assemble import BatchLayout, new_row_lru
from robostream.batches.source_reader import SourceReaders, prefetch_requests
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
    needed_frames,
)
from robostream.device import ByteArray
from robostream.plan import WorkerShard


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
        decoders: The decoder of each camera.
        prefetch_requests: How many requests fetch bytes ahead at a time; 0 if no dataset is remote
            and has a cache.
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
        self.prefetch_requests = max(prefetch_requests(each.dataset) for each in layout.sources)
        yuv_sizes = [camera.yuv_size for camera in cameras]
        on_cpu = FrameDecoder(
            frame_cache, self._meter, max_waiting=budgets.max_decodings, yuv_sizes=yuv_sizes
        )
        on_gpu = None if budgets.gpu is None else self._open_gpu(budgets, yuv_sizes)
        self._on_gpu = on_gpu
        self._all_decoders = [on_cpu] if on_gpu is None else [on_gpu, on_cpu]
        self.decoders = [on_gpu if on_gpu and camera.is_yuv else on_cpu for camera in cameras]

    def _open_gpu(self, budgets: WorkerBudgets, yuv_sizes: list[Size | None]) -> FrameDecoder:
        # Imported on demand, so that workers without a GPU start faster.
        from robostream.device import DeviceRenderer, device_memory, open_nvdec

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

    def has_room(self, frames: int, until: int) -> bool:
        """Return whether so many more decoded frames fit into the memory for them.

        Only frames that are delivered after the next `until` steps may be evicted for them.
        Never on a GPU, where decoded frames take memory of the decoder.
        """
        return self._on_gpu is None and self._all_decoders[0].has_room(frames, until)

    def count(self) -> None:
        """Add the counts since the last call to the shared counters."""
        for decoder in self._all_decoders:
            decoder.count_evictions()
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
