# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import Any

import av

from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.packets import begins_afresh, carries_parameters, read_packets
from robostream.decode.runs import Run, start_earlier
from robostream.errors import VideoFileError
from robostream.fetch import ByteSource

# A thread meets as many set-ups as there are cameras with encoders of their own.
_CONTEXTS_PER_THREAD = 8
_DAV1D = "libdav1d"
_JOINED = 8


class PyavBackend:
    """Feeds packets to codec contexts, one per thread and codec set-up, reused across files."""

    def __init__(self) -> None:
        self._local = threading.local()

    def decode(
        self, source: ByteSource, index: FrameIndex, run: Run
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield (number, frame) for the frames of a run."""
        asked = run
        config = index.configs[run.config]
        packets = read_packets(source, index, run)
        while not begins_afresh(packets[0], config) and (earlier := start_earlier(index, run)):
            run = earlier
            packets = read_packets(source, index, run)
        context = self._take(config)
        try:
            yield from _feed(context, packets, index, run, asked.first_frame)
        except av.FFmpegError as error:
            raise VideoFileError(
                f"{source.name}: frames {asked.first_frame} and on cannot be decoded "
                f"({error.strerror}). The file is damaged; download or copy it again."
            ) from error
        # Parameter sets that came with the packets outlive a flush and would spoil the next run.
        if not any(carries_parameters(packet, config) for packet in packets):
            self._give_back(config, context)

    def _take(self, config: CodecConfig) -> av.VideoCodecContext:
        idle: OrderedDict[CodecConfig, av.VideoCodecContext] = self._idle()
        # Taken out while in use: a run that fails or is abandoned leaves its context behind.
        context = idle.pop(config, None)
        return _open(config) if context is None else context

    def _give_back(self, config: CodecConfig, context: av.VideoCodecContext) -> None:
        context.flush_buffers()
        idle = self._idle()
        idle[config] = context
        if len(idle) > _CONTEXTS_PER_THREAD:
            idle.popitem(last=False)

    def _idle(self) -> OrderedDict[CodecConfig, av.VideoCodecContext]:
        if not hasattr(self._local, "idle"):
            self._local.idle = OrderedDict()
        idle: OrderedDict[CodecConfig, av.VideoCodecContext] = self._local.idle
        return idle


def _open(config: CodecConfig) -> av.VideoCodecContext:
    context = av.CodecContext.create(config.decoder, "r")
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width = config.width
    context.height = config.height
    # Threads decode different runs; threads inside a decoder would only compete with them.
    context.thread_count = 1
    return context


def _feed(
    context: av.VideoCodecContext,
    packets: list[memoryview],
    index: FrameIndex,
    run: Run,
    first_frame: int,
) -> Iterator[tuple[int, av.VideoFrame]]:
    numbers = index.frames_of(run.first_packet, run.stop_packet)
    decoded: Iterator[tuple[int | None, av.VideoFrame]]
    if context.name == _DAV1D and index.frames is None:
        decoded = _decode_joined(context, packets, numbers, index.file)
    else:
        decoded = _decode_singly(context, packets, numbers)
    for number, frame in decoded:
        if number is None or number < first_frame:
            yield -1, frame
        elif frame.is_corrupt:
            raise VideoFileError(
                f"{index.file}: frame {number} is damaged; the decoder could only guess it. "
                "Download or copy the file again."
            )
        else:
            yield number, frame


def _decode_singly(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int]
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode packet by packet; a frame's number rides through the decoder as its time stamp."""
    # The last packet is none at all: it makes the decoder give what it has held back.
    for packet in chain(map(_packet, packets, numbers), (None,)):
        for frame in context.decode(packet):
            yield frame.pts, frame


def _decode_joined(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int], file: str
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode several AV1 packets at a time; each shows one frame, and they come in this order.

    Making a packet, sending it and letting go of it hands Python's lock over four times; with two
    threads that costs more than the packets' bytes do.
    """
    expected = iter(numbers)
    groups = (b"".join(packets[at : at + _JOINED]) for at in range(0, len(packets), _JOINED))
    for packet in chain(map(av.Packet, groups), (None,)):
        for frame in context.decode(packet):
            number = next(expected, None)
            if number is None:
                raise _miscounted(file, len(numbers))
            yield number, frame
    if next(expected, None) is not None:
        raise _miscounted(file, len(numbers))


def _miscounted(file: str, count: int) -> VideoFileError:
    return VideoFileError(
        f"{file}: {count} packets did not give {count} pictures. The file is damaged; download or "
        "copy it again."
    )


def _packet(content: memoryview, number: int) -> av.Packet[Any]:
    # Of its own memory: decoders read past the end, where FFmpeg wants zeros.
    packet = av.Packet(content)  # type: ignore[arg-type]  # any buffer will do
    packet.pts = number
    return packet
