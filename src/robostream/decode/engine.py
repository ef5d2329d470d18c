# SPDX-License-Identifier: Apache-2.0
"""Frames of video files by number, each decoded as few times as the budget allows."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from robostream.config import REORDER_POSITIONS, STRETCH_FRAMES
from robostream.decode.backend import Backend, Piece
from robostream.decode.choice import (
    Choice,
    Miss,
    choose_by_next_use,
    choose_by_recency,
    choose_wanted,
)
from robostream.decode.file_cache import VideoDecoderCache
from robostream.decode.flights import Flights
from robostream.decode.frame_index import FrameIndex
from robostream.decode.index_cache import load_index, save_index
from robostream.decode.indexing import build_index
from robostream.decode.keeper import Keeper
from robostream.decode.metering import Meter, MeteredSource
from robostream.decode.native import load_ffmpeg
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.render import Renderer, layout_of
from robostream.decode.requests import HeldFile, Job, Want, begin, check_served
from robostream.decode.slot_table import NextUses
from robostream.decode.statistics import DecodeStatistics
from robostream.decode.store import FrameStore
from robostream.fetch import ByteSource

logger = logging.getLogger(__name__)


class FrameEngine:
    """Reads frames by number into batch slots. Thread-safe; belongs to the process that made it.

    Args:
        open_source: Opens a file's bytes by the name `read` is called with.
        store_bytes: Budget for decoded frames; 0 decodes each frame when it is wanted.
        max_files: How many files are held open at most; None for no limit.
        store_folder: Keeps decoded frames in a nameless file here instead of in RAM.
        next_uses: Knows when frames will be wanted again; without it the least recently used go.
        reorder: By how many positions samples may be served out of order.
        keep_used: Whether frames without a known use ahead are kept while there is room for them,
            for an epoch to come.
        backend: What decodes; PyAV unless given.
        index_folder: Keeps the indices of files here; it is to belong to one version of a dataset.
        statistics: Where counts go; new counters unless given.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        store_bytes: int,
        max_files: int | None = None,
        store_folder: Path | None = None,
        next_uses: NextUses | None = None,
        reorder: int = REORDER_POSITIONS,
        keep_used: bool = True,
        backend: Backend | None = None,
        index_folder: Path | None = None,
        statistics: DecodeStatistics | None = None,
    ) -> None:
        self.statistics = statistics or DecodeStatistics()
        self.files = VideoDecoderCache(self._open, max_files)
        self._max_files = max_files
        self._open_source = open_source
        self._backend = backend or PyavBackend()
        self._store = FrameStore(
            store_bytes,
            folder=store_folder,
            next_uses=next_uses,
            reorder=reorder,
            keep_used=keep_used,
        )
        self._flights = Flights()
        self._index_folder = index_folder
        self._local = threading.local()
        self._counting = threading.Lock()
        self._counted = (0, 0, 0, 0)

    def __enter__(self) -> FrameEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of all files and kept frames."""
        self._count(Meter(), 0)
        self.files.clear()
        self._store.clear()

    def index(self, file: str) -> FrameIndex:
        """Return the frame index of a file."""
        return self.files.get(file).index

    def read(
        self,
        file: str,
        frames: npt.ArrayLike,
        out: npt.NDArray[Any],
        *,
        position: int | None = None,
        within: tuple[int, int] | None = None,
    ) -> None:
        """Write frames of one file into `out`; the arguments are those of a `Want`."""
        self.read_all([Want(file, frames, out, position, within)])

    def read_all(self, wants: Sequence[Want]) -> None:
        """Write the frames of several wants.

        Quicker than one by one: what is kept is converted in one go, and threads take Python's lock
        from each other less often.
        """
        # A group holds all its files open.
        limit = self._max_files or len(wants)
        for first in range(0, len(wants), max(limit, 1)):
            self._read_group(wants[first : first + limit])

    def _read_group(self, wants: Sequence[Want]) -> None:
        is_planned = self._store.next_uses is not None
        positions = [want.position for want in wants if want.position is not None]
        if positions:
            self._store.advance(min(positions))
        if len(positions) < len(wants) and is_planned:
            raise ValueError("an engine that knows next uses must be told each read's position")
        meter = Meter()
        delivered = 0
        try:
            jobs = [begin(w, self.files.get(w.file), is_planned=is_planned) for w in wants]
            self._serve(jobs, meter)
            delivered = sum(len(job.out) for job in jobs)
        finally:
            self._count(meter, delivered)

    def _serve(self, jobs: list[Job], meter: Meter) -> None:
        if self._store.budget_bytes:
            self._serve_kept(jobs, meter)
            self._serve_missing(jobs, meter)
        else:
            self._decode([(job, choose_wanted(job.file.index, job.rows)) for job in jobs], meter)
        for job in jobs:
            job.fill_repeats()

    def _serve_missing(self, jobs: list[Job], meter: Meter) -> None:
        """Decode the frames that are not kept, stretch by stretch."""
        while jobs := [job for job in jobs if job.rows]:
            landings = [landing for job in jobs if (landing := self._serve_stretch(job, meter))]
            # What other threads are decoding comes last, and is waited for only when nothing else
            # is left to do.
            if len(landings) == len(jobs):
                landings[0].wait()

    def _serve_stretch(self, job: Job, meter: Meter) -> threading.Event | None:
        """Decode the stretch of the first missing frame, unless another thread is at it."""
        edges = job.file.stretches
        stretch = int(edges.searchsorted(min(job.rows), "right")) - 1
        flight = (job.file.name, stretch)
        if (landing := self._flights.claim(flight)) is not None:
            return landing
        try:
            # Whoever decoded the stretch before may have kept what is wanted here.
            self._serve_kept([job], meter)
            bounds = int(edges[stretch]), int(edges[stretch + 1])
            wanted = sorted(frame for frame in job.rows if frame < bounds[1])
            if wanted:
                self._decode([(job, self._choose(job, wanted, bounds))], meter)
        finally:
            self._flights.land(flight)
        return None

    def _serve_kept(self, jobs: list[Job], meter: Meter) -> None:
        """Write the frames that are kept."""
        began = time.perf_counter()
        renderer = self._renderer()
        found = [(job, self._store.pin(job.file.name, job.rows)) for job in jobs]
        try:
            for job, kept in found:
                for one in kept:
                    out = job.out[job.rows.pop(one.frame)]
                    renderer.draw_packed(one.memory, one.layout, out, file=job.file.name)
                meter.store_hits += len(kept)
        finally:
            self._store.unpin([one for _, kept in found for one in kept])
        meter.convert_s += time.perf_counter() - began

    def _choose(self, job: Job, wanted: list[int], stretch: tuple[int, int]) -> Choice:
        miss = Miss(
            file=job.file.name,
            wanted=np.array(wanted, np.int64),
            first=min(max(stretch[0], job.bounds[0]), wanted[0]),
            stop=max(min(stretch[1], job.bounds[1]), wanted[-1] + 1),
            position=job.position,
            is_in_order=job.is_in_order,
            layout=job.file.layout,
        )
        if self._store.next_uses is None:
            return choose_by_recency(job.file.index, miss, self._store)
        return choose_by_next_use(job.file.index, miss, self._store)

    def _decode(self, choices: list[tuple[Job, Choice]], meter: Meter) -> None:
        """Decode the chosen runs, write what is wanted, keep what is to be kept."""
        began, elsewhere = time.perf_counter(), meter.elsewhere_s
        keepers = [
            Keeper(self._store, job.file.name, choice, self._renderer(), meter)
            for job, choice in choices
        ]
        owners: list[tuple[Job, Keeper]] = []
        pieces: list[Piece] = []
        for (job, choice), keeper in zip(choices, keepers, strict=True):
            source = MeteredSource(job.file.source, meter)
            owners += [(job, keeper)] * len(choice.runs)
            pieces += [Piece(source, job.file.index, run) for run in choice.runs]
        try:
            for place, frame, picture in self._backend.decode(pieces):
                job, keeper = owners[place]
                meter.images_decoded += 1
                if frame in job.rows:
                    self._deliver(job, frame, picture, meter)
                keeper.keep(frame, picture)
        except BaseException:
            for keeper in keepers:
                keeper.abandon()
            raise
        finally:
            meter.decode_s += time.perf_counter() - began - (meter.elsewhere_s - elsewhere)
        for (job, _), keeper in zip(choices, keepers, strict=True):
            job.file.layout = keeper.close() or job.file.layout
        for job, choice in choices:
            check_served(job, choice.wanted)

    def _deliver(self, job: Job, frame: int, picture: av.VideoFrame, meter: Meter) -> None:
        began = time.perf_counter()
        out = job.out[job.rows.pop(frame)]
        self._renderer().draw(picture, layout_of(picture), out, file=job.file.name)
        meter.convert_s += time.perf_counter() - began

    def _renderer(self) -> Renderer:
        if not hasattr(self._local, "renderer"):
            self._local.renderer = Renderer(load_ffmpeg())
        renderer: Renderer = self._local.renderer
        return renderer

    def _open(self, file: str) -> HeldFile:
        source = self._open_source(file)
        folder = self._index_folder
        index = None if folder is None else load_index(folder, source.name, source.size())
        if index is None:
            index = build_index(source)
            if folder is not None:
                self._save(folder, index)
        return HeldFile(file, source, index, index.stretches(STRETCH_FRAMES))

    def _save(self, folder: Path, index: FrameIndex) -> None:
        try:
            save_index(folder, index)
        except OSError as error:
            # Without it things go on as well, only slower the next time: said once.
            logger.warning("frame indices cannot be kept in %s: %s", folder, error)
            self._index_folder = None

    def _count(self, meter: Meter, delivered: int) -> None:
        # Files and store count for themselves; what is new since the last read is added here.
        files = self.files
        with self._counting:
            now = files.hits, files.misses, files.evictions, self._store.evictions
            before, self._counted = self._counted, now
        self.statistics.add(
            (
                delivered,
                meter.images_decoded,
                meter.store_hits,
                now[3] - before[3],
                meter.fetch_s,
                meter.decode_s,
                meter.convert_s,
                meter.copy_s,
                now[0] - before[0],
                now[1] - before[1],
                now[2] - before[2],
            )
        )
