# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import av

from robostream.decode.codec.backend import Decoded, FileRun
from robostream.decode.codec.packets import begins_afresh, carries_parameters, read_packets
from robostream.decode.codec.runs import start_earlier
from robostream.decode.index.frame_index import CodecConfig
from robostream.decode.picture.from_pyav import FrameReader
from robostream.errors import VideoFileError
from robostream.storage import Recent

# Contexts that are kept for the next run. Each camera may have an encoder set-up of its own.
_IDLE_CONTEXTS = 8


class PyavBackend:
    """Feeds packets to codec contexts, one per codec set-up, reused across files. For one thread.

    A run whose frames were not all taken keeps its context until its iterator is closed.
    """

    def __init__(self) -> None:
        self._idle: Recent[CodecConfig, av.VideoCodecContext] = Recent(_IDLE_CONTEXTS)
        self._frames = FrameReader()

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        read = self._frames.read
        for place, file_run in enumerate(file_runs):
            for number, frame in self.frames(file_run):
                file = file_run.source.name
                yield place, number, None if number < 0 else read(frame, file=file)

    def frames(self, file_run: FileRun) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield (number, PyAV's frame) for the frames of a run, -1 for those not asked for."""
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
        return _open(config) if context is None else context

    def _give_back(self, config: CodecConfig, context: av.VideoCodecContext) -> None:
        context.flush_buffers()
        self._idle.put(config, context)


def _open(config: CodecConfig) -> av.VideoCodecContext:
    context = av.CodecContext.create(config.decoder, "r")
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
