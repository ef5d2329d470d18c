# SPDX-License-Identifier: Apache-2.0
"""The decoder of torchcodec, in place of PyAV's, if it and the system's FFmpeg are installed.

It opens a container per file and seeks in it. It gives 8-bit RGB, so cached frames take twice the
memory, and it cannot decode depth videos. Its frames are checked against the index by their times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robostream.decode.backends import Decoded, FileRun
from robostream.decode.frame_index import FrameIndex, Run
from robostream.decode.frames import frame_layout, frame_of_arrays
from robostream.decode.video_files import VideoFile
from robostream.errors import MissingExtraError, VideoFileError
from robostream.storage import LruCache, SourceFile

_OPEN_DECODERS = 16
# So many frames are asked of torchcodec at a time: the RGB of a long GOP is large.
_FRAMES_PER_CALL = 32


class TorchcodecBackend:
    """Feeds runs to torchcodec decoders, one per file. For one thread."""

    def __init__(self) -> None:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError) as error:
            raise MissingExtraError(
                "torchcodec", "torchcodec", "decoding with torchcodec"
            ) from error
        self._decoder_type: Any = VideoDecoder
        self._decoders: LruCache[str, Any] = LruCache(_OPEN_DECODERS)

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (index of run, frame number, frame) for several runs."""
        for place, file_run in enumerate(file_runs):
            yield from self._decode_run(place, *file_run)

    def _decode_run(self, place: int, file: VideoFile, run: Run) -> Iterator[Decoded]:
        index, name = file.index, file.source.name
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders.put(name, self._open(file))
        shown = index.frames_of(run.first_packet, run.stop_packet)
        numbers = sorted(number for number in shown if number >= run.first_frame)
        times_s = index.times_s(numbers)
        half_a_tick = float(index.time_base) / 2
        for at in range(0, len(numbers), _FRAMES_PER_CALL):
            wanted = numbers[at : at + _FRAMES_PER_CALL]
            try:
                batch = decoder.get_frames_at(indices=wanted)
            except RuntimeError as error:
                raise VideoFileError(
                    f"{name}: frames {wanted[0]} to {wanted[-1]} cannot be decoded "
                    f"({error}). The file is damaged; download or copy it again."
                ) from error
            off = np.abs(batch.pts_seconds.numpy() - times_s[at : at + _FRAMES_PER_CALL])
            if np.any(off > half_a_tick):
                raise VideoFileError(
                    f"{name}: torchcodec gave other frames than {wanted[0]} to "
                    f"{wanted[-1]} (their times are up to {off.max():.6f} s off). Use the PyAV "
                    "backend for this file."
                )
            # It gives rows of interleaved pixels in a view that puts the channels first.
            for number, channels in zip(
                wanted, np.ascontiguousarray(batch.data.numpy()), strict=True
            ):
                _, height, width = channels.shape
                layout = frame_layout("rgb", width, height, 0, 0)
                yield place, number, frame_of_arrays(layout, channels)

    def _open(self, file: VideoFile) -> Any:
        mappings = _frame_mappings(file.index)
        try:
            return self._decoder_type(SourceFile(file.source), custom_frame_mappings=mappings)
        except (RuntimeError, ValueError) as error:
            raise VideoFileError(
                f"{file.source.name}: torchcodec cannot open this ({error}). Use the PyAV backend "
                "for it."
            ) from error


def _frame_mappings(index: FrameIndex) -> bytes:
    """Return the frame table for which torchcodec would otherwise scan the whole file. Pure."""
    starts = set(index.start_frames.tolist())
    pts = index.pts.tolist()
    steps = np.diff(index.pts).tolist() or [1]
    rows = [
        {"pts": at, "duration": step, "key_frame": int(number in starts)}
        for number, (at, step) in enumerate(zip(pts, [*steps, steps[-1]], strict=False))
    ]
    return json.dumps({"frames": rows}).encode()
