# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import av
from av.codec.hwaccel import HWAccel

from robostream.decode.codec.backend import Decoded, FileRun
from robostream.decode.codec.packets import (
    begins_afresh,
    carry_parameters,
    new_packet,
    read_packets,
)
from robostream.decode.codec.runs import start_earlier
from robostream.decode.index.frame_index import CodecConfig
from robostream.decode.picture.decoded import DecodedFrame
from robostream.decode.picture.from_pyav import FrameReader
from robostream.errors import VideoFileError

# Contexts that are kept for the next run. Each camera may have an encoder set-up of its own.
_IDLE_CONTEXTS = 8
# Decoding a picture fills the processor's caches with other things, and Python is several times
# slower after it. So packets are prepared for all runs first, and pictures are handed on so many at
# a time.
_FRAMES_AT_A_TIME = 16

Packets = list["av.Packet[Any] | None"]

OpenContext = Callable[[CodecConfig], av.VideoCodecContext]


class Read(Protocol):
    """Takes the picture out of a frame of a file."""

    def __call__(self, frame: av.VideoFrame, *, file: str) -> DecodedFrame:
        """Return it."""


class PyavBackend:
    """Feeds packets to codec contexts, one per codec set-up, reused across files. For one thread.

    A run whose frames were not all taken keeps its context until its iterator is closed.

    Args:
        open_context: Opens a codec context; on the CPU unless given.
        read: Takes the picture out of a frame.
        frames_at_a_time: So many frames are decoded before they are handed on.
    """

    def __init__(
        self,
        open_context: OpenContext | None = None,
        read: Read | None = None,
        *,
        frames_at_a_time: int = _FRAMES_AT_A_TIME,
    ) -> None:
        self._idle: dict[CodecConfig, av.VideoCodecContext] = {}
        self._open = open_context or open_on_cpu
        self._read = read or FrameReader().read
        self._frames_at_a_time = frames_at_a_time

    def decode(self, file_runs: Sequence[FileRun]) -> Iterator[Decoded]:
        """Yield (place, number, picture) for the frames of several runs, one after the other."""
        for place, number, frame in self.frames(file_runs):
            file = file_runs[place].source.name
            yield place, number, None if frame is None else self._read(frame, file=file)

    def frames(
        self, file_runs: Sequence[FileRun]
    ) -> Iterator[tuple[int, int, av.VideoFrame | None]]:
        """Yield (place, number, frame of PyAV's) for the frames of several runs."""
        frames = self._decode(file_runs)
        # Who gives one run may want its frames one by one, with a decoder that waits in between.
        size = 1 if len(file_runs) == 1 else self._frames_at_a_time
        shown: set[tuple[int, int]] = set()
        while several := list(itertools.islice(frames, size)):
            for place, frame in several:
                file_run, number = file_runs[place], frame.pts
                if number is None or number < file_run.run.first_frame:
                    yield place, -1, None
                    continue
                if frame.is_corrupt or (place, number) in shown:
                    raise VideoFileError(
                        f"{file_run.source.name}: frame {number} is damaged; the decoder "
                        f"{'reports it as corrupt' if frame.is_corrupt else 'gave it twice'}. "
                        "Download or copy the file again."
                    )
                shown.add((place, number))
                yield place, number, frame

    def _decode(self, file_runs: Sequence[FileRun]) -> Iterator[tuple[int, av.VideoFrame]]:
        """Yield (place, frame) for all frames; the number of a frame is its time stamp."""
        for place, (packets, is_clean) in enumerate(list(map(_prepare, file_runs))):
            file_run, config = file_runs[place], file_runs[place].config
            context = self._take(config)
            try:
                for packet in packets:
                    for frame in context.decode(packet):
                        yield place, frame
            except av.FFmpegError as error:
                raise VideoFileError(
                    f"{file_run.source.name}: frames {file_run.run.first_frame} and on cannot be "
                    f"decoded ({error.strerror}). The file is damaged; download or copy it again."
                ) from error
            if is_clean:
                self._give_back(config, context)

    def _take(self, config: CodecConfig) -> av.VideoCodecContext:
        # A context in use is not in the list, so one whose run fails is not used again.
        return self._idle.pop(config, None) or self._open(config)

    def _give_back(self, config: CodecConfig, context: av.VideoCodecContext) -> None:
        context.flush_buffers()
        self._idle[config] = context
        if len(self._idle) > _IDLE_CONTEXTS:
            del self._idle[next(iter(self._idle))]  # used longest ago


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


def _prepare(file_run: FileRun) -> tuple[Packets, bool]:
    """Return the packets of a run, and whether their context may be used again."""
    source, index, run, config = file_run.source, file_run.index, file_run.run, file_run.config
    contents = read_packets(source, index, run)
    while not begins_afresh(contents[0], config) and (earlier := start_earlier(index, run)):
        run = earlier
        contents = read_packets(source, index, run)
    numbers = index.frames_of(run.first_packet, run.stop_packet)
    # None after the last packet makes the decoder give the frames that it has held back.
    packets: Packets = [*map(_packet, contents, numbers), None]
    # Parameter sets that came with the packets stay in the context also after a flush, and the
    # next run would be decoded with them. Such a context is not used again.
    return packets, not carry_parameters(contents, config)


def _packet(content: memoryview, number: int) -> av.Packet[Any]:
    packet = new_packet(content)
    # The decoder hands the number on as the time stamp of the frame.
    packet.pts = number
    return packet
