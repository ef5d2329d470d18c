# SPDX-License-Identifier: Apache-2.0
"""Random access to frames of video files by number; frames decoded lately are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.decode.backends import Backend, PyavBackend
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frame_index import FrameIndex
from robostream.decode.frames import DecodedFrame
from robostream.decode.packets import FileRun, plan_runs
from robostream.decode.read_ahead import ReadingOrder, frames_to_decode
from robostream.decode.recent_frames import RecentFrames
from robostream.decode.render import FrameScaler, Renderer, Size
from robostream.decode.statistics import DecodeStatistics, Meter
from robostream.decode.video_files import VideoFile, VideoFiles
from robostream.errors import VideoFileError
from robostream.storage import ByteSource


class FrameEngine:
    """Reads frames by number into arrays. For one thread at a time, of the process that made it.

    Which frames are decoded beside those that are asked for, `read_ahead.py` says.

    Args:
        open_source: Opens a file's bytes by the name `read` is called with.
        budget_bytes: Budget for decoded pictures; 0 decodes each frame when it is wanted.
        max_files: How many files are held open at most.
        backend: What decodes; PyAV unless given.
        index_folder: Where the indices of files are saved; one folder per version of a dataset.
    """

    def __init__(
        self,
        open_source: Callable[[str], ByteSource],
        *,
        budget_bytes: int,
        max_files: int,
        backend: Backend | None = None,
        index_folder: Path | None = None,
    ) -> None:
        self.statistics = DecodeStatistics()
        self._meter = Meter()
        self.files = VideoFiles(
            open_source, max_files=max_files, index_folder=index_folder, meter=self._meter
        )
        self._backend = backend or PyavBackend()
        self._renderer = Renderer(load_ffmpeg())
        self._scaler = FrameScaler(self._renderer)
        self._recent = RecentFrames(budget_bytes)
        self._order = ReadingOrder()

    def __enter__(self) -> FrameEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all files and drop all kept pictures."""
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
        resize: bool = False,
    ) -> None:
        """Write frames of one file, in the order given; they may repeat.

        Args:
            file: The file's name, as `open_source` knows it.
            frames: Frame numbers in presentation order, T of them.
            out: (T, 3, height, width) uint8, or float32 in [0, 1]; for depth (T, 1, height, width)
                uint16 codes. Each picture must be contiguous.
            within: Only frames of [first, stop) are decoded beside those asked for, such as the
                frames of an episode; None for the whole file.
            resize: Scale pictures to the size of `out`, which must be the same in every call.
        """
        numbers: list[int] = np.asarray(frames, np.int64).tolist()
        held = self.files.get(file)
        _check_request(held.index, numbers, out)
        rows: dict[int, int] = {}
        for row, number in enumerate(numbers):
            rows.setdefault(number, row)
        try:
            missing = self._draw_kept(held, rows, out)
            if missing:
                self._decode(
                    held, missing, out, within or (0, held.index.num_frames), resize=resize
                )
            for row, number in enumerate(numbers):
                if rows[number] != row:
                    out[row] = out[rows[number]]
            self._meter.images_delivered += len(numbers)
        finally:
            self._count()

    def _draw_kept(
        self, held: VideoFile, rows: dict[int, int], out: npt.NDArray[Any]
    ) -> dict[int, int]:
        """Draw the frames that are kept; return the others, with their rows."""
        began = time.perf_counter()
        missing: dict[int, int] = {}
        for number, row in rows.items():
            kept = self._recent.find(held.name, number)
            if kept is None:
                missing[number] = row
            else:
                self._renderer.draw_packed(
                    [kept.memory], kept.layout, out[row : row + 1], file=held.name
                )
                self._meter.picture_hits += 1
        self._meter.convert_s += time.perf_counter() - began
        return missing

    def _decode(
        self,
        held: VideoFile,
        rows: dict[int, int],
        out: npt.NDArray[Any],
        within: tuple[int, int],
        *,
        resize: bool,
    ) -> None:
        """Decode missing frames, and those `read_ahead.py` adds to them; keep all of them."""
        began, elsewhere = time.perf_counter(), self._meter.elsewhere_s
        chosen = frames_to_decode(held, sorted(rows), within, self._order, self._recent)
        file_runs = [FileRun(held.source, held.index, run) for run in plan_runs(held.index, chosen)]
        left, kept = dict(rows), []
        size = (out.shape[2], out.shape[3]) if resize else None
        try:
            for _, number, picture in self._backend.decode(file_runs):
                self._meter.images_decoded += 1
                if picture is None:
                    continue
                is_new = (held.name, number) not in self._recent
                if number not in left and not (is_new and self._recent.budget_bytes):
                    continue
                scaled = self._scale(held, picture, size)
                if number in left:
                    self._draw(held, scaled, out[left.pop(number)])
                if is_new:
                    kept.append(number)
                    self._keep(held, number, scaled)
            _check_complete(held, left)
        except BaseException:
            # After an error nobody can be sure that the frames before it have the right numbers.
            for number in kept:
                self._recent.forget(held.name, number)
            raise
        finally:
            elsewhere = self._meter.elsewhere_s - elsewhere
            self._meter.decode_s += time.perf_counter() - began - elsewhere

    def _scale(self, held: VideoFile, picture: DecodedFrame, size: Size | None) -> DecodedFrame:
        began = time.perf_counter()
        scaled = self._scaler.scale(picture, size, file=held.name)
        self._meter.convert_s += time.perf_counter() - began
        return scaled

    def _draw(self, held: VideoFile, picture: DecodedFrame, out: npt.NDArray[Any]) -> None:
        began = time.perf_counter()
        self._renderer.draw(picture, out, file=held.name)
        self._meter.convert_s += time.perf_counter() - began

    def _keep(self, held: VideoFile, number: int, picture: DecodedFrame) -> None:
        began = time.perf_counter()
        memory = self._recent.add(held.name, number, picture.layout)
        if memory is not None:
            self._renderer.pack(picture, memory)
        self._meter.copy_s += time.perf_counter() - began

    def _count(self) -> None:
        evictions, counts = self._recent.take_evictions(), self.files.take_counts()
        self.statistics.add(self._meter.take(picture_evictions=evictions, **counts))


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


def _check_complete(held: VideoFile, left: dict[int, int]) -> None:
    if left:
        raise VideoFileError(
            f"{held.index.file}: the decoder gave no picture for frame {min(left)}. The file is "
            "damaged; download or copy it again."
        )
