# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import av

from robostream.decode.codec.backend import Decoded, FileRun
from robostream.decode.codec.packets import begins_afresh, carries_parameters, read_packets
from robostream.decode.codec.runs import start_earlier
from robostream.decode.index.frame_index import CodecConfig
from robostream.decode.picture.from_pyav import FrameReader
from robostream.errors import VideoFileError

# There are as many set-ups as cameras with encoders of their own.
_IDLE_CONTEXTS = 8


class PyavBackend:
    """Feeds packets to codec contexts, one per codec set-up, reused across files. For one thread.

    A run that is decoded only in part keeps its context until its iterator is closed.
    """

    def __init__(self) -> None:
        self._idle: OrderedDict[CodecConfig, av.VideoCodecContext] = OrderedDict()
        self._frames = FrameReader()

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        read = self._frames.read
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
        # Parameter sets that came with the packets outlive a flush and would spoil the next run.
        if not any(carries_parameters(packet, config) for packet in packets):
            self._give_back(config, context)

    def _take(self, config: CodecConfig) -> av.VideoCodecContext:
        # Taken out while in use: a run that fails or is abandoned leaves its context behind.
        context = self._idle.pop(config, None)
        return _open(config) if context is None else context

    def _give_back(self, config: CodecConfig, context: av.VideoCodecContext) -> None:
        context.flush_buffers()
        self._idle[config] = context
        if len(self._idle) > _IDLE_CONTEXTS:
            self._idle.popitem(last=False)


def _open(config: CodecConfig) -> av.VideoCodecContext:
    context = av.CodecContext.create(config.decoder, "r")
    assert isinstance(context, av.VideoCodecContext)
    context.extradata = config.extradata or None
    context.width = config.width
    context.height = config.height
    # Processes decode different runs; threads inside a decoder would only compete with them.
    context.thread_count = 1
    return context


def _feed(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int]
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode packet by packet; a frame's number rides through the decoder as its time stamp."""
    # The last packet is none at all: it makes the decoder give what it has held back.
    for packet in itertools.chain(map(_packet, packets, numbers), (None,)):
        for frame in context.decode(packet):
            yield frame.pts, frame


def _packet(content: memoryview, number: int) -> av.Packet[Any]:
    # Of its own memory: decoders read past the end, where FFmpeg wants zeros.
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
                f"{'could only guess it' if frame.is_corrupt else 'showed it twice'}. "
                "Download or copy the file again."
            )
        shown.add(number)
        yield number, frame
