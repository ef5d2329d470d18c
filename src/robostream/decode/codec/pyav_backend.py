# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import av
from av.codec.hwaccel import HWAccel

from robostream.decode.codec.backend import Decoded, FileRun
from robostream.decode.codec.packets import begins_afresh, carries_parameters, read_packets
from robostream.decode.codec.runs import start_earlier
from robostream.decode.index.frame_index import CodecConfig
from robostream.decode.picture.decoded import DecodedPicture
from robostream.decode.picture.from_pyav import FrameReader
from robostream.errors import VideoFileError
from robostream.storage import Recent

# Contexts that are kept for the next run. Each camera may have an encoder set-up of its own.
_IDLE_CONTEXTS = 8

OpenContext = Callable[[CodecConfig], av.VideoCodecContext]


class Read(Protocol):
    """Takes the picture out of a frame of a file."""

    def __call__(self, frame: av.VideoFrame, *, file: str) -> DecodedPicture:
        """Return it."""


class PyavBackend:
    """Feeds packets to codec contexts, one per codec set-up, reused across files. For one thread.

    A run whose frames were not all taken keeps its context until its iterator is closed.

    Args:
        open_context: Opens a codec context; on the CPU unless given.
        read: Takes the picture out of a frame.
    """

    def __init__(self, open_context: OpenContext | None = None, read: Read | None = None) -> None:
        self._idle: Recent[CodecConfig, av.VideoCodecContext] = Recent(_IDLE_CONTEXTS)
        self._open = open_context or open_on_cpu
        self._read = read or FrameReader().read

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        read = self._read
        for place, file_run in enumerate(file_runs):
            for number, frame in self._decode_run(file_run):
                file = file_run.source.name
                yield place, number, None if number < 0 else read(frame, file=file)

    def _decode_run(self, file_run: FileRun) -> Iterator[tuple[int, av.VideoFrame]]:
        index, run, config = file_run.index, file_run.run, file_run.config
        packets = read_packets(file_run.source, index, run)
        while not begins_afresh(packets[0], config) and (earlier := start_earlier(index, run)):
            run = earlier
            packets = read_packets(file_run.source, index, run)
        context = self._take(config)
        try:
            numbers = index.frames_of(run.first_packet, run.stop_packet)
            yield from _check(file_run, _feed(context, packets, numbers))
        except av.FFmpegError as error:
            raise VideoFileError(
                f"{file_run.source.name}: frames {file_run.run.first_frame} and on cannot be "
                f"decoded ({error.strerror}). The file is damaged; download or copy it again."
            ) from error
        # Parameter sets that came with the packets stay in the context also after a flush, and the
        # next run would be decoded with them. Such a context is not used again.
        if not any(carries_parameters(packet, config) for packet in packets):
            self._give_back(config, context)

    def _take(self, config: CodecConfig) -> av.VideoCodecContext:
        # A context in use is not in the list, so one whose run fails is not used again.
        context = self._idle.get(config)
        self._idle.forget(config)
        return self._open(config) if context is None else context

    def _give_back(self, config: CodecConfig, context: av.VideoCodecContext) -> None:
        context.flush_buffers()
        self._idle.put(config, context)


def open_on_cpu(config: CodecConfig) -> av.VideoCodecContext:
    """Return a decoder on the CPU."""
    return new_context(config, config.decoder, None)


def new_context(
    config: CodecConfig, name: str, accelerator: HWAccel | None
) -> av.VideoCodecContext:
    """Return a decoder of a name, with an encoder's set-up."""
    context = av.CodecContext.create(name, "r", accelerator)
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width = config.width
    context.height = config.height
    # Several processes decode at a time; threads inside a decoder would only compete with them.
    context.thread_count = 1
    return context


def _feed(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int]
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode packet by packet; the decoder hands a frame's number on as its time stamp."""
    # None after the last packet makes the decoder give the frames that it has held back.
    for packet in itertools.chain(map(_packet, packets, numbers), (None,)):
        for frame in context.decode(packet):
            yield frame.pts, frame


def _packet(content: memoryview, number: int) -> av.Packet[Any]:
    # av.Packet copies the bytes and adds zeros, because decoders read past the end of a packet.
    packet = av.Packet(content)  # type: ignore[arg-type]  # any buffer will do
    packet.pts = number
    return packet


def _check(
    file_run: FileRun, frames: Iterator[tuple[int | None, av.VideoFrame]]
) -> Iterator[tuple[int, av.VideoFrame]]:
    """Yield frames with their numbers, -1 for those before the run's first; damage is an error."""
    shown: set[int] = set()
    for number, frame in frames:
        if number is None or number < file_run.run.first_frame:
            yield -1, frame
            continue
        if frame.is_corrupt or number in shown:
            raise VideoFileError(
                f"{file_run.source.name}: frame {number} is damaged; the decoder "
                f"{'reports it as corrupt' if frame.is_corrupt else 'gave it twice'}. "
                "Download or copy the file again."
            )
        shown.add(number)
        yield number, frame
