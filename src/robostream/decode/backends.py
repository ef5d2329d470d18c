# SPDX-License-Identifier: Apache-2.0
"""Decoders: from runs of packets to frames, through PyAV or torchcodec.

PyAV is the default. It decodes through bare codec contexts: no container, no seek, no system
FFmpeg. torchcodec, if it and the system's FFmpeg are installed, opens a container per file and
seeks in it. It gives 8-bit RGB, so cached frames take twice the memory, and it cannot decode depth
videos. Its frames are checked against the index by their times.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import av
import numpy as np
from av.codec.hwaccel import HWAccel

from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.frames import DecodedFrame, FrameReader, frame_layout, frame_of_arrays
from robostream.decode.packets import (
    Run,
    begins_afresh,
    carry_parameters,
    new_packet,
    read_packets,
    start_earlier,
)
from robostream.decode.video_files import VideoFile
from robostream.errors import MissingExtraError, VideoFileError
from robostream.storage import LruCache, SourceFile

# Contexts that wait for the next run. Each camera may have encoder settings of its own.
_IDLE_CONTEXTS = 8
# Decoding a frame fills the processor's caches with other things, and Python is several times
# slower after it. So packets are prepared for all runs first, and frames are handed on so many at
# a time.
_FRAMES_AT_A_TIME = 16
_OPEN_DECODERS = 16
# So many frames are asked of torchcodec at a time: the RGB of a long GOP is large.
_FRAMES_PER_CALL = 32

FileRun = tuple[VideoFile, Run]
# (index in the list of runs, frame number, frame); number -1 and no frame for what is not wanted.
Decoded = tuple[int, int, DecodedFrame | None]
Packets = list["av.Packet[Any] | None"]
OpenContext = Callable[[CodecConfig], av.VideoCodecContext]


class Backend(Protocol):
    """Decodes runs of packets. For one thread."""

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (index in `file_runs`, frame number, frame), in no promised order.

        Every shown frame of a run's packets from `run.first_frame` on is yielded once. Other frames
        that had to be decoded are yielded with the number -1 and without a frame, so that they
        can be counted. A frame stays valid after the iterator has moved on. A damaged file raises
        VideoFileError.
        """


@functools.cache
def has_codec(name: str, mode: Literal["r", "w"]) -> bool:
    """Return whether PyAV's FFmpeg has a decoder ("r"), or an encoder ("w"), of this name."""
    try:
        av.Codec(name, mode)
    except av.codec.codec.UnknownCodecError:
        return False
    return True


class PyavBackend:
    """Feeds packets to codec contexts, one for each codec configuration. For one thread.

    A run whose frames were not all taken keeps its context until its iterator is closed.

    Args:
        open_context: Opens a codec context; on the CPU unless given.
        read: Called with each frame and its file's name; returns what `decode` yields. Reads the
            frame's planes unless given.
        frames_at_a_time: So many frames are decoded before they are handed on.
    """

    def __init__(
        self,
        open_context: OpenContext | None = None,
        read: Callable[[av.VideoFrame, str], Any] | None = None,
        *,
        frames_at_a_time: int = _FRAMES_AT_A_TIME,
    ) -> None:
        self._idle: dict[CodecConfig, av.VideoCodecContext] = {}
        self._open = open_context or open_on_cpu
        self._read = read or FrameReader().read
        self._frames_at_a_time = frames_at_a_time

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[tuple[int, int, Any]]:
        """Yield (index of run, frame number, frame) for several runs, one after the other."""
        frames, read = self._decode(file_runs), self._read
        # The caller of one run may take its frames one by one, with a decoder that waits between.
        size = 1 if len(file_runs) == 1 else self._frames_at_a_time
        shown: set[tuple[int, int]] = set()
        while several := list(itertools.islice(frames, size)):
            for place, frame in several:
                (file, run), number = file_runs[place], frame.pts
                if number is None or number < run.first_frame:
                    yield place, -1, None
                    continue
                if frame.is_corrupt or (place, number) in shown:
                    raise VideoFileError(
                        f"{file.source.name}: frame {number} is damaged; the decoder "
                        f"{'reports it as corrupt' if frame.is_corrupt else 'gave it twice'}. "
                        "Download or copy the file again."
                    )
                shown.add((place, number))
                yield place, number, read(frame, file.source.name)

    def _decode(self, file_runs: Sequence[FileRun]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield (index of run, frame) for all frames; a frame's time stamp is its number."""
        idle = self._idle
        for place, (packets, is_clean) in enumerate(list(map(_prepare, file_runs))):
            file, run = file_runs[place]
            # A context in use is not among the idle ones, so one whose run fails is not reused.
            context = idle.pop(run.config, None) or self._open(run.config)
            try:
                for packet in packets:
                    for frame in context.decode(packet):
                        yield place, frame
            except av.FFmpegError as error:
                raise VideoFileError(
                    f"{file.source.name}: frames {run.first_frame} and on cannot be decoded "
                    f"({error.strerror}). The file is damaged; download or copy it again."
                ) from error
            if is_clean:
                context.flush_buffers()
                idle[run.config] = context
                if len(idle) > _IDLE_CONTEXTS:
                    del idle[next(iter(idle))]  # the least recently used


def open_on_cpu(config: CodecConfig) -> av.VideoCodecContext:
    """Return a decoder on the CPU."""
    return new_context(config, config.decoder, None)


def new_context(
    config: CodecConfig, name: str, accelerator: HWAccel | None
) -> av.VideoCodecContext:
    """Return the decoder of a name, with an encoder's settings."""
    context = av.CodecContext.create(name, "r", accelerator)
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width = config.width
    context.height = config.height
    # Several processes decode at a time; threads inside a decoder would only compete with them.
    context.thread_count = 1
    return context


def _prepare(file_run: FileRun) -> tuple[Packets, bool]:
    """Return the packets of a run, and whether their context may be reused."""
    file, run = file_run
    index, config = file.index, run.config
    contents = read_packets(file.source, index, run)
    while not begins_afresh(contents[0], config) and (earlier := start_earlier(index, run)):
        run = earlier
        contents = read_packets(file.source, index, run)
    # The decoder hands the number of a packet's frame on as the frame's time stamp.
    numbers = index.frames_of(run.first_packet, run.stop_packet)
    # None after the last packet makes the decoder give the frames that it has held back.
    packets: Packets = [*map(new_packet, contents, numbers), None]
    # Parameter sets that came with the packets stay in the context even after a flush, and the
    # next run would be decoded with them. Such a context is not reused.
    return packets, not carry_parameters(contents, config)


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
            for number, frame in self._decode_run(file_run):
                yield place, number, frame

    def _decode_run(self, file_run: FileRun) -> Iterator[tuple[int, DecodedFrame]]:
        file, run = file_run
        index, name = file.index, file.source.name
        decoder = self._decoders.get(name)
        if decoder is None:
            decoder = self._decoders.put(name, self._open(file))
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
                yield number, frame_of_arrays(frame_layout("rgb", width, height, 0, 0), channels)

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
