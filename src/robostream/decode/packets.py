# SPDX-License-Identifier: Apache-2.0
"""Which packets a set of frames needs, their bytes, and which units of the codec they hold.

Packets are decoded in runs; each run goes to a decoder in one go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import av
import numpy as np

from robostream.decode.frame_index import CodecConfig, FrameIndex, Int64s
from robostream.storage import ByteRange, ByteSource, coalesce

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
_TRUE = np.ones(1, bool)


class Run(NamedTuple):
    """Packets [first_packet, stop_packet) of one file, decoded in one go.

    Only frames from `first_frame` on are exact: frames before it depend on packets before the run.
    """

    first_packet: int
    stop_packet: int
    first_frame: int
    config: CodecConfig


def plan_runs(index: FrameIndex, frames: Int64s | Sequence[int]) -> list[Run]:
    """Return the fewest runs that decode all `frames` (ascending). Pure.

    A GOP is decoded from its start to its last wanted packet; GOPs that touch become one run.
    """
    if not len(frames):
        return []
    in_order = index.packets is None and len(index.configs) == 1
    if len(frames) == 1 or (in_order and frames[-1] - frames[0] < len(frames)):
        # One frame, or frames without a gap, stored in order: by far the most frequent case. It is
        # done without numpy, which is slow with single numbers.
        gop = max(bisect_right(index.start_frames, int(frames[0])) - 1, 0)
        last = int(frames[-1])
        packet = last if index.packets is None else int(index.packets[last])
        return [_run_from(index, gop, packet + 1)]
    frames = np.asarray(frames, np.int64)
    gops = index.gops_of(frames)
    stops = index.packets_of(frames) + 1
    first, config = index.starts[gops], index.start_configs[gops]
    reached = np.maximum.accumulate(stops)
    is_separate = (first[1:] > reached[:-1]) | (config[1:] != config[:-1])
    heads = np.flatnonzero(np.concatenate([_TRUE, is_separate]))
    last_stops = np.maximum.reduceat(stops, heads)
    return [
        _run_from(index, gop, stop)
        for gop, stop in zip(gops[heads].tolist(), last_stops.tolist(), strict=True)
    ]


def start_earlier(index: FrameIndex, run: Run) -> Run | None:
    """Return the run with the GOP before it added; None if that has other settings. Pure."""
    gop = int(np.searchsorted(index.starts, run.first_packet)) - 1
    if gop < 0 or index.configs[index.start_configs[gop]] is not run.config:
        return None
    return _run_from(index, gop, run.stop_packet)


def _run_from(index: FrameIndex, gop: int, stop: int) -> Run:
    config = index.configs[index.start_configs[gop]]
    return Run(int(index.starts[gop]), stop, int(index.start_frames[gop]), config)


def packet_span(index: FrameIndex, frames: Int64s | Sequence[int]) -> tuple[int, int]:
    """Return the bytes [start, stop) that hold all packets some frames (ascending) need. Pure."""
    runs = plan_runs(index, frames)
    first, stop = min(run.first_packet for run in runs), max(run.stop_packet for run in runs)
    positions, sizes = index.byte_offsets[first:stop], index.sizes[first:stop]
    return int(positions.min()), int((positions.astype(np.int64) + sizes).max())


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

    That holds for the key frames of HEVC, AV1 and VP9. An H.264 key packet may also be a recovery
    point (of an open GOP or an intra refresh), for which it does not; only an IDR frame counts.
    This also finds most packets that a table wrongly lists as key packets.
    """
    if config.decoder == "libdav1d":
        return _begins_with_sequence_header(packet)
    if config.decoder == "h264":
        return _H264_IDR in _unit_types(packet, config)
    if config.decoder == "hevc":
        return not _HEVC_KEYS.isdisjoint(_unit_types(packet, config))
    return True


def carry_parameters(packets: list[memoryview], config: CodecConfig) -> bool:
    """Return whether one of some packets changes the decoder's parameter sets. Pure."""
    parameters = _PARAMETERS.get(config.decoder)
    return parameters is not None and any(
        not parameters.isdisjoint(_unit_types(packet, config)) for packet in packets
    )


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


def _begins_with_sequence_header(packet: memoryview) -> bool:
    """Return whether a packet starts as every key packet of AV1 in an MP4 does."""
    at = 0
    # An empty temporal delimiter may come first, although it should have been left out.
    if len(packet) > 2 and packet[0] >> 3 & 15 == _AV1_TEMPORAL_DELIMITER:
        at = 2 if packet[0] & _AV1_HAS_SIZE else 1
    return len(packet) > at and packet[at] >> 3 & 15 == _AV1_SEQUENCE_HEADER
