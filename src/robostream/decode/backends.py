# SPDX-License-Identifier: Apache-2.0
"""Decoders: from runs of packets to frames, by default through PyAV.

PyAV decodes through bare codec contexts: no container, no seek, no system FFmpeg.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Protocol

import av
from av.codec.hwaccel import HWAccel

from robostream.decode.frame_index import CodecConfig, FrameIndex, Run, start_earlier
from robostream.decode.frames import DecodedFrame, FrameReader
from robostream.decode.video_files import VideoFile
from robostream.errors import VideoFileError
from robostream.storage import ByteRange, ByteSource, coalesce

# Contexts that wait for the next run. Each camera may have encoder settings of its own.
_IDLE_CONTEXTS = 8
# Decoding a frame fills the processor's caches with other things, and Python is several times
# slower after it. So packets are prepared for all runs first, and frames are handed on so many at
# a time.
_FRAMES_AT_A_TIME = 16
# Packets of other tracks, such as sound, may lie in between. Up to so many bytes of them, one read
# that includes them costs less than two reads.
_MAX_GAP_BYTES = 64 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024

_H264_IDR = 5
_HEVC_KEYS = frozenset(range(16, 22))
_PARAMETERS = {"h264": frozenset((7, 8, 13, 15)), "hevc": frozenset((32, 33, 34))}
_AV1_SEQUENCE_HEADER = 1
_AV1_TEMPORAL_DELIMITER = 2
_AV1_HAS_SIZE = 2

FileRun = tuple[VideoFile, Run]
# (index in the list of runs, frame number, frame); number -1 and no frame for what is not wanted.
Decoded = tuple[int, int, DecodedFrame | None]
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
        idle = self._idle
        # The caller of one run may take its frames one by one, with a decoder that waits between.
        size = 1 if len(file_runs) == 1 else self._frames_at_a_time
        held: list[tuple[int, av.VideoFrame]] = []
        shown: set[tuple[int, int]] = set()
        for place, (packets, is_clean) in enumerate(list(map(_prepare, file_runs))):
            file, run = file_runs[place]
            # A context in use is not among the idle ones, so one whose run fails is not reused.
            context = idle.pop(run.config, None) or self._open(run.config)
            for packet in packets:
                try:
                    held += zip(itertools.repeat(place), context.decode(packet))
                except av.FFmpegError as error:
                    raise VideoFileError(
                        f"{file.source.name}: frames {run.first_frame} and on cannot be decoded "
                        f"({error.strerror}). The file is damaged; download or copy it again."
                    ) from error
                if len(held) >= size:
                    yield from self._read_all(file_runs, held, shown)
                    held.clear()
            if is_clean:
                context.flush_buffers()
                idle[run.config] = context
                if len(idle) > _IDLE_CONTEXTS:
                    del idle[next(iter(idle))]  # the least recently used
        yield from self._read_all(file_runs, held, shown)

    def _read_all(
        self,
        file_runs: Sequence[FileRun],
        frames: list[tuple[int, av.VideoFrame]],
        shown: set[tuple[int, int]],
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield what `decode` yields for frames, whose time stamps are their numbers."""
        for place, frame in frames:
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
            yield place, number, self._read(frame, file.source.name)


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


def _prepare(file_run: FileRun) -> tuple[list[av.Packet[Any] | None], bool]:
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
    packets = [*map(new_packet, contents, numbers), None]
    # Parameter sets that came with the packets stay in the context even after a flush, and the
    # next run would be decoded with them. Such a context is not reused.
    kinds = _PARAMETERS.get(config.decoder)
    is_clean = kinds is None or all(kinds.isdisjoint(_unit_types(p, config)) for p in contents)
    return packets, is_clean


def read_packets(source: ByteSource, index: FrameIndex, run: Run) -> list[memoryview]:
    """Return the bytes of each packet of a run, in decode order; near packets share a read."""
    first, stop = run.first_packet, run.stop_packet
    offsets: list[int] = index.byte_offsets[first:stop].tolist()
    sizes: list[int] = index.sizes[first:stop].tolist()
    begin, end = min(offsets), max(map(int.__add__, offsets, sizes))
    if end - begin <= sum(sizes) + _MAX_GAP_BYTES:
        content = memoryview(source.read(begin, end))
        return [content[p - begin : p - begin + n] for p, n in zip(offsets, sizes, strict=True)]
    wanted = [ByteRange(p, p + n) for p, n in zip(offsets, sizes, strict=True) if n]
    packets = [memoryview(b"")] * len(sizes)
    for read in coalesce(wanted, max_gap_bytes=_MAX_GAP_BYTES, max_read_bytes=_MAX_READ_BYTES):
        content = memoryview(source.read(read.start, read.stop))
        for place, (p, n) in enumerate(zip(offsets, sizes, strict=True)):
            if n and read.start <= p and p + n <= read.stop:
                packets[place] = content[p - read.start : p - read.start + n]
    return packets


def new_packet(content: bytes | memoryview, pts: int | None = None) -> av.Packet[Any]:
    """Return a packet with zeros after its bytes, where decoders read on.

    A packet made of the bytes themselves would have there whatever comes next in memory.
    """
    packet: av.Packet[Any] = av.Packet(len(content))
    packet.update(content)  # type: ignore[arg-type]  # any buffer will do
    packet.pts = pts
    return packet


def begins_afresh(packet: memoryview, config: CodecConfig) -> bool:
    """Return whether nothing shown after a key packet refers to frames before it. Pure.

    That holds for the key frames of HEVC, AV1 and VP9. In an MP4, every key packet of AV1 begins
    with a sequence header. An H.264 key packet may also be a recovery point (of an open GOP or an
    intra refresh), for which it does not hold; only an IDR frame counts. This also finds most
    packets that a table wrongly lists as key packets.
    """
    if config.decoder == "libdav1d":
        # An empty temporal delimiter may come first, although it should have been left out.
        if len(packet) > 2 and packet[0] >> 3 & 15 == _AV1_TEMPORAL_DELIMITER:
            packet = packet[2 if packet[0] & _AV1_HAS_SIZE else 1 :]
        return len(packet) > 0 and packet[0] >> 3 & 15 == _AV1_SEQUENCE_HEADER
    if config.decoder == "h264":
        return _H264_IDR in _unit_types(packet, config)
    if config.decoder == "hevc":
        return not _HEVC_KEYS.isdisjoint(_unit_types(packet, config))
    return True


def _unit_types(packet: memoryview, config: CodecConfig) -> list[int]:
    shift, mask, length_at = (0, 0x1F, 4) if config.decoder == "h264" else (1, 0x3F, 21)
    header = config.extradata
    length_bytes = (header[length_at] & 3) + 1 if len(header) > length_at else 4
    types = []
    at = 0
    while at + length_bytes < len(packet):
        types.append(packet[at + length_bytes] >> shift & mask)
        at += length_bytes + int.from_bytes(packet[at : at + length_bytes], "big")
    return types
