# SPDX-License-Identifier: Apache-2.0
"""Decoding through torchcodec, if it and the system's FFmpeg are installed.

It opens a container per file and seeks in it. It gives 8-bit RGB, so kept frames take twice the
memory, and depth videos cannot be decoded with it. Its frames are checked against the index by
their times.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from robostream.decode.codec.backend import Decoded, FileRun
from robostream.decode.codec.runs import Run
from robostream.decode.index.frame_index import FrameIndex
from robostream.decode.picture.decoded import DecodedFrame, picture_of_arrays
from robostream.decode.picture.layout import kept_layout
from robostream.errors import MissingExtraError, VideoFileError
from robostream.storage import ByteSource, LruCache, SourceFile

_OPEN_DECODERS = 16
# So many frames are asked for at a time, so that the RGB of a long GOP is not in memory at once.
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
        """Yield (place, number, picture) for the frames of several runs."""
        for place, file_run in enumerate(file_runs):
            for number, picture in self._decode_run(file_run.source, file_run.index, file_run.run):
                yield place, number, picture

    def _decode_run(
        self, source: ByteSource, index: FrameIndex, run: Run
    ) -> Iterator[tuple[int, DecodedFrame]]:
        decoder = self._decoder(source, index)
        shown = index.frames_of(run.first_packet, run.stop_packet)
        numbers = sorted(number for number in shown if number >= run.first_frame)
        times_s = index.times_s()[numbers]
        half_a_tick = float(index.time_base) / 2
        for at in range(0, len(numbers), _FRAMES_PER_CALL):
            wanted = numbers[at : at + _FRAMES_PER_CALL]
            try:
                batch = decoder.get_frames_at(indices=wanted)
            except RuntimeError as error:
                raise VideoFileError(
                    f"{source.name}: frames {wanted[0]} to {wanted[-1]} cannot be decoded "
                    f"({error}). The file is damaged; download or copy it again."
                ) from error
            off = np.abs(batch.pts_seconds.numpy() - times_s[at : at + _FRAMES_PER_CALL])
            if np.any(off > half_a_tick):
                raise VideoFileError(
                    f"{source.name}: torchcodec gave other frames than {wanted[0]} to "
                    f"{wanted[-1]} (their times are up to {off.max():.6f} s off). Use the PyAV "
                    "backend for this file."
                )
            # It gives rows of pixels, seen from the side of the channels.
            pictures = np.ascontiguousarray(batch.data.numpy())
            for number, channels in zip(wanted, pictures, strict=True):
                _, height, width = channels.shape
                yield number, picture_of_arrays(kept_layout("rgb", width, height, 0, 0), channels)

    def _decoder(self, source: ByteSource, index: FrameIndex) -> Any:
        decoder = self._decoders.get(index.file)
        if decoder is None:
            decoder = self._decoders.put(index.file, self._open(source, index))
        return decoder

    def _open(self, source: ByteSource, index: FrameIndex) -> Any:
        try:
            return self._decoder_type(
                SourceFile(source), custom_frame_mappings=_frame_mappings(index)
            )
        except (RuntimeError, ValueError) as error:
            raise VideoFileError(
                f"{index.file}: torchcodec cannot open this ({error}). Use the PyAV backend for it."
            ) from error


def _frame_mappings(index: FrameIndex) -> bytes:
    """Return the frame table that torchcodec would otherwise scan the whole file for. Pure."""
    starts = set(index.start_frames.tolist())
    pts = index.pts.tolist()
    steps = np.diff(index.pts).tolist() or [1]
    rows = [
        {"pts": at, "duration": step, "key_frame": int(number in starts)}
        for number, (at, step) in enumerate(zip(pts, [*steps, steps[-1]], strict=False))
    ]
    return json.dumps({"frames": rows}).encode()
