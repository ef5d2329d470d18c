# SPDX-License-Identifier: Apache-2.0
"""Random access: frames of video files by number, what was decoded lately kept."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import av
import numpy as np
import numpy.typing as npt

from robostream.config import STRETCH_FRAMES
from robostream.decode.backend import Backend, Piece
from robostream.decode.frame_index import FrameIndex
from robostream.decode.metering import Meter, MeteredSource
from robostream.decode.native import load_ffmpeg
from robostream.decode.pyav_backend import PyavBackend
from robostream.decode.recent_frames import RecentFrames
from robostream.decode.render import Layout, Renderer, layout_of
from robostream.decode.runs import plan_runs
from robostream.decode.statistics import DecodeStatistics
from robostream.decode.video_files import VideoFile, VideoFiles
from robostream.errors import VideoFileError
from robostream.fetch import ByteSource

# Reads whose first frames are at most this far apart count as reading in order.
_STEP_IN_ORDER = 8


class FrameEngine:
    """Reads frames by number into arrays. For one thread at a time, of the process that made it.

    More than what is wanted is decoded on evidence only: a stretch of about `STRETCH_FRAMES` when
    frames are read in order, a whole GOP when its first frame is still kept from an earlier visit.

    Args:
        open_source: Opens a file's bytes by the name `read` is called with.
        store_bytes: Budget for decoded pictures; 0 decodes each frame when it is wanted.
        max_files: How many files are held open at most.
        backend: What decodes; PyAV unless given.
        index_folder: Keeps the indices of files here; it is to belong to one version of a dataset.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        store_bytes: int,
        max_files: int,
        backend: Backend | None = None,
        index_folder: Path | None = None,
    ) -> None:
        self.statistics = DecodeStatistics()
        self.files = VideoFiles(open_source, max_files=max_files, index_folder=index_folder)
        self._backend = backend or PyavBackend()
        self._renderer = Renderer(load_ffmpeg())
        self._recent = RecentFrames(store_bytes)
        self._meter = Meter()
        self._last_reads: dict[str, tuple[int, int]] = {}
        self._layouts: dict[str, Layout] = {}

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
        """Let go of all files and kept pictures."""
        self._count()
        self.files.clear()
        self._recent.clear()

    def index(self, file: str) -> FrameIndex:
        """Return the frame index of a file."""
        return self.files.get(file).index

    def read(
        self,
        file: str,
        frames: npt.ArrayLike,
        out: npt.NDArray[Any],
        *,
        within: tuple[int, int] | None = None,
    ) -> None:
        """Write frames of one file, in the order given; they may repeat.

        Args:
            file: The file's name, as `open_source` knows it.
            frames: Frame numbers in presentation order, T of them.
            out: (T, 3, height, width) uint8, or float32 in [0, 1]; for depth (T, 1, height, width)
                uint16 codes. Each picture must be contiguous.
            within: Frames [first, stop) anybody may want, an episode's say; the whole file if None.
        """
        numbers: list[int] = np.asarray(frames, np.int64).tolist()
        held = self.files.get(file)
        _check_request(held.index, numbers, out)
        rows: dict[int, int] = {}
        for row, number in enumerate(numbers):
            rows.setdefault(number, row)
        try:
            self._draw_kept(held, rows, out)
            if rows:
                self._decode(held, rows, out, within or (0, held.index.num_frames))
            _repeat(numbers, out)
            self._meter.images_delivered += len(numbers)
        finally:
            self._count()

    def _draw_kept(self, held: VideoFile, rows: dict[int, int], out: npt.NDArray[Any]) -> None:
        began = time.perf_counter()
        for number in list(rows):
            kept = self._recent.find(held.name, number)
            if kept is not None:
                self._renderer.draw_packed(*kept, out[rows.pop(number)], file=held.name)
                self._meter.store_hits += 1
        self._meter.convert_s += time.perf_counter() - began

    def _decode(
        self, held: VideoFile, rows: dict[int, int], out: npt.NDArray[Any], within: tuple[int, int]
    ) -> None:
        """Decode missing frames with what is worth decoding beside them; keep all of it."""
        began, elsewhere = time.perf_counter(), self._meter.elsewhere_s
        runs = plan_runs(held.index, self._choose(held, sorted(rows), within))
        source = MeteredSource(held.source, self._meter)
        kept: list[int] = []
        try:
            pieces = [Piece(source, held.index, run) for run in runs]
            for _, number, picture in self._backend.decode(pieces):
                self._meter.images_decoded += 1
                if number in rows:
                    self._draw(held, picture, out[rows.pop(number)])
                if number >= 0 and self._keep(held, number, picture):
                    kept.append(number)
        except BaseException:
            # After an error it is not certain which frame is which.
            for number in kept:
                self._recent.forget(held.name, number)
            raise
        finally:
            elsewhere = self._meter.elsewhere_s - elsewhere
            self._meter.decode_s += time.perf_counter() - began - elsewhere
        if rows:
            raise VideoFileError(
                f"{held.index.file}: the decoder gave no picture for frame {min(rows)}. The file "
                "is damaged; download or copy it again."
            )

    def _choose(
        self, held: VideoFile, wanted: list[int], within: tuple[int, int]
    ) -> npt.NDArray[np.int64]:
        index = held.index
        frames = np.array(wanted, np.int64)
        layout = self._layouts.get(held.name)
        room = self._recent.capacity(layout) if layout is not None else 0
        edges = np.append(index.start_frames, index.num_frames)
        gops = np.unique(index.gops_of(frames))
        if self._follows(held.name, wanted[0]) and room > STRETCH_FRAMES:
            at = int(np.searchsorted(edges, wanted[-1] + STRETCH_FRAMES))
            stop = min(int(edges[min(at, len(edges) - 1)]), within[1], wanted[-1] + room // 2)
            ahead = np.arange(wanted[-1], stop)
            missing = [n for n in ahead.tolist() if (held.name, n) not in self._recent]
            return np.union1d(frames, np.array(missing, np.int64))
        again = [
            np.arange(edges[gop], edges[gop + 1])
            for gop in gops.tolist()
            if (held.name, int(edges[gop])) in self._recent
            and edges[gop + 1] - edges[gop] <= room // 2
        ]
        return np.unique(np.concatenate([frames, *again]))

    def _follows(self, file: str, first: int) -> bool:
        """Note a read and return whether it is the third or a later one of reads in order."""
        last, steps = self._last_reads.get(file, (-1, 0))
        steps = steps + 1 if 0 <= first - last <= _STEP_IN_ORDER + STRETCH_FRAMES else 0
        self._last_reads[file] = first, steps
        return steps >= 2

    def _draw(self, held: VideoFile, picture: av.VideoFrame, out: npt.NDArray[Any]) -> None:
        began = time.perf_counter()
        self._renderer.draw(picture, layout_of(picture), out, file=held.name)
        self._meter.convert_s += time.perf_counter() - began

    def _keep(self, held: VideoFile, number: int, picture: av.VideoFrame) -> bool:
        if (held.name, number) in self._recent or not self._recent.budget_bytes:
            return False
        began = time.perf_counter()
        layout = self._layouts[held.name] = layout_of(picture)
        memory = self._recent.add(held.name, number, layout)
        if memory is not None:
            self._renderer.pack(picture, layout, memory, file=held.name)
        self._meter.copy_s += time.perf_counter() - began
        return memory is not None

    def _count(self) -> None:
        files, recent = self.files, self._recent
        self.statistics.add(
            self._meter.take(
                store_evictions=recent.evictions,
                file_hits=files.hits,
                file_misses=files.misses,
                file_evictions=files.evictions,
            )
        )
        recent.evictions = files.hits = files.misses = files.evictions = 0


def _repeat(numbers: list[int], out: npt.NDArray[Any]) -> None:
    """Copy the pictures of frames that are wanted more than once."""
    first: dict[int, int] = {}
    row = 0
    for number, same in itertools.groupby(numbers):
        stop = row + len(list(same))
        source = first.setdefault(number, row)
        if source == row:
            row += 1
        if row < stop:
            out[row:stop] = out[source]
        row = stop


def _check_request(index: FrameIndex, numbers: list[int], out: npt.NDArray[Any]) -> None:
    if out.ndim != 4 or len(out) != len(numbers):
        raise ValueError(
            f"want out of shape (T, C, H, W) with T={len(numbers)} slots, got {out.shape}"
        )
    if numbers and not (min(numbers) >= 0 and max(numbers) < index.num_frames):
        raise IndexError(
            f"{index.file} has frames 0 to {index.num_frames - 1}; asked for {min(numbers)} to "
            f"{max(numbers)}"
        )
