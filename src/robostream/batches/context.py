# SPDX-License-Identifier: Apache-2.0
"""What one process holds open to build its parts of batches: files, decoders, pictures, rows."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.assemble import (
    EpisodeRows,
    RowCache,
    SampleLayout,
    find_frames,
    new_row_lru,
)
from robostream.batches.clip import Clip, Clock
from robostream.batches.clip_decoder import ClipDecoder, Tools, tools_on_cpu, tools_on_gpu
from robostream.batches.clip_decoders import ClipDecoders
from robostream.batches.frame_cache import FrameCache, PrivateFrameCache
from robostream.batches.part_fetcher import PartFetcher
from robostream.decode import DecodeStatistics, Meter, VideoFiles, packet_span
from robostream.plan import Ints, WorkerShard

_NOW = np.zeros(1, np.int64)


@dataclass(frozen=True, slots=True)
class WorkerBudgets:
    """What one process may use.

    Attributes:
        frame_bytes: Memory for decoded pictures; 0 decodes each when it is delivered.
        row_bytes: Memory for the rows of episodes in use, with the pictures stored in them.
        max_files: Video files held open.
        max_decodings: Decoders that wait in the middle of a long GOP.
        runs_ahead: Whether pictures are decoded ahead; not if `frame_bytes` is too little for them.
        gpu: The GPU that decodes parcels, such as "cuda:0", and keeps them in as many bytes of its
            own memory; None to decode everything on the CPU.
    """

    frame_bytes: int
    row_bytes: int
    max_files: int
    max_decodings: int
    runs_ahead: bool
    gpu: str | None = None


class WorkerContext:
    """Builds its parts of batches. For one thread of the process that made it.

    Args:
        layout: How samples lie in a batch.
        duties: Which parts are its own.
        budgets: What it may use.
        counters: A row of `decode.COUNTERS` to add to.
        shelf: Where decoded pictures are kept, if not in memory of its own.
    """

    def __init__(
        self,
        layout: SampleLayout,
        duties: WorkerShard,
        budgets: WorkerBudgets,
        *,
        counters: npt.NDArray[np.float64] | None = None,
        shelf: FrameCache | None = None,
    ) -> None:
        dataset, spec = layout.dataset, layout.spec
        self.layout = layout
        self.duties = duties
        self.runs_ahead = budgets.runs_ahead
        self.keeps_pictures = shelf is not None or budgets.frame_bytes > 0
        self.shelf = shelf or PrivateFrameCache(budgets.frame_bytes)
        self._shelves = [self.shelf]
        self.statistics = DecodeStatistics(counters)
        self._meter = Meter()
        self._door = dataset.file_opener()
        self._files = VideoFiles(
            self._door.open,
            max_files=budgets.max_files,
            index_folder=dataset.index_folder,
            looked_since_s=dataset.opened_at_s,
            meter=self._meter,
        )
        self.projector = self._open_projectors(budgets)
        self.offsets = [spec.windows.get(camera.key, _NOW) for camera in layout.cameras]
        self.offset_lists: list[list[int]] = [offsets.tolist() for offsets in self.offsets]
        self.is_video = [camera.key in spec.videos for camera in layout.cameras]
        self.bringer = self._open_bringer()
        # Pictures in Parquet are read apart: another process may own the rest of their rows.
        plain = [key for key in spec.columns if key not in spec.images]
        held = new_row_lru(budgets.row_bytes)
        self._rows = RowCache(dataset, self._door, plain, held, checks_times=True)
        self._pictures = {
            key: RowCache(dataset, self._door, [key], held, checks_times=False)
            for key in spec.images
        }

    def _open_projectors(self, budgets: WorkerBudgets) -> ClipDecoders:
        cameras = self.layout.cameras

        def projector(tools: Tools) -> ClipDecoder:
            return ClipDecoder(
                tools,
                self._meter,
                max_decodings=budgets.max_decodings,
                sizes=[camera.resize for camera in cameras],
                parcels=[camera.yuv_size for camera in cameras],
            )

        on_cpu = projector(tools_on_cpu(self.shelf))
        if budgets.gpu is None:
            return ClipDecoders(on_cpu, None, ())
        tools = tools_on_gpu(budgets.gpu, budgets.frame_bytes)
        self._shelves.append(tools.shelf)
        on_gpu = projector(tools)
        parcels = [number for number, camera in enumerate(cameras) if camera.is_yuv]
        return ClipDecoders(on_cpu, on_gpu, parcels)

    def _open_bringer(self) -> PartFetcher | None:
        """Return what fetches ahead, where there is a place to bring bytes to."""
        dataset = self.layout.dataset
        if not dataset.files.is_remote or dataset.files.cache is None:
            return None
        return PartFetcher(
            dataset,
            self._door,
            [camera.key for camera in self.layout.cameras],
            self.offsets,
            files=self._files,
            shelf=self.shelf,
        )

    def rows(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode, without pictures."""
        return self._rows.get(episode)

    def stored_pictures(self, camera: int, episode: int) -> EpisodeRows:
        """Return the rows of an episode with one camera's pictures."""
        return self._pictures[self.layout.cameras[camera].key].get(episode)

    def open_clip(
        self, clock: Clock, camera: int, episode: int, samples: Ints, steps: Ints
    ) -> Clip:
        """Return the reel of a camera for samples (frames of an episode, ascending) and steps."""
        key = self.layout.cameras[camera].key
        file, numbers = find_frames(self.layout.dataset, self._files, episode, key)
        reel = Clip(
            clock,
            camera,
            episode,
            file,
            numbers,
            samples=samples,
            steps=steps,
            offsets=self.offsets[camera],
        )
        # A decoder on a GPU takes long to open, so none waits in the middle of a GOP.
        reel.is_whole = self.projector.is_on_gpu(camera)
        self.shelf.open(reel)
        return reel

    def bring(self, reel: Clip, pictures: list[int]) -> None:
        """Have the bytes of pictures close by before they are decoded, and of those beside them."""
        for part in [p for p in reel.far if any(p[0] <= picture < p[1] for picture in pictures)]:
            began = time.perf_counter()
            reel.file.source.ensure_cached(
                *packet_span(reel.file.index, reel.numbers[slice(*part)])
            )
            self._meter.fetch_s += time.perf_counter() - began
            reel.far.remove(part)

    def explain(self, error: Exception) -> Exception:
        """Return the error that says why a sample cannot be built; see `VideoFiles.explain`."""
        return self._files.explain(error)

    def count_stored(self, pictures: int) -> None:
        """Count pictures that were read from Parquet."""
        self._meter.images_delivered += pictures
        self._meter.images_decoded += pictures

    def count(self) -> None:
        """Add what was counted since the last call to the shared counters."""
        counts = self._files.take_counts()
        evictions = sum(shelf.evictions for shelf in self._shelves)
        work = self._meter.take(picture_evictions=evictions, **counts)
        self.statistics.add((*work, *self._door.traffic.take()))
        for shelf in self._shelves:
            shelf.evictions = 0

    def close(self) -> None:
        """Let go of everything."""
        self._files.clear()
        for shelf in (self._rows, *self._pictures.values()):
            shelf.close()
