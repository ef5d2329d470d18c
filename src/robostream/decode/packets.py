# SPDX-License-Identifier: Apache-2.0
"""The packets of a run: their bytes, and what H.264 and HEVC units lie in them."""

from __future__ import annotations

from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.runs import Run
from robostream.fetch import ByteRange, ByteSource, coalesce

# Other tracks' packets (sound, say) may lie between; below this, one read over them is cheaper.
_MAX_GAP_BYTES = 64 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024

_H264_IDR = 5
_H264_PARAMETERS = frozenset((7, 8, 13, 15))
_HEVC_KEYS = frozenset(range(16, 22))
_HEVC_PARAMETERS = frozenset((32, 33, 34))


def read_packets(source: ByteSource, index: FrameIndex, run: Run) -> list[memoryview]:
    """Return the bytes of each packet of a run, in decode order, with as few reads as sensible."""
    first, stop = run.first_packet, run.stop_packet
    positions = index.positions[first:stop].tolist()
    sizes = index.sizes[first:stop].tolist()
    begin, end = min(positions), max(map(int.__add__, positions, sizes))
    if end - begin <= sum(sizes) + _MAX_GAP_BYTES:
        content = memoryview(source.read(begin, end))
        return [content[p - begin : p - begin + n] for p, n in zip(positions, sizes, strict=True)]
    wanted = [ByteRange(p, p + n) for p, n in zip(positions, sizes, strict=True) if n]
    reads = coalesce(wanted, max_gap_bytes=_MAX_GAP_BYTES, max_read_bytes=_MAX_READ_BYTES)
    packets: dict[int, memoryview] = {}
    for read in reads:
        content = memoryview(source.read(read.start, read.stop))
        for p, n in zip(positions, sizes, strict=True):
            if read.start <= p and p + n <= read.stop:
                packets[p] = content[p - read.start : p - read.start + n]
    return [packets.get(p, memoryview(b"")) for p in positions]


def unit_types(packet: memoryview, config: CodecConfig) -> list[int] | None:
    """Return the types of the units in an H.264 or HEVC packet; None for other codecs. Pure."""
    if config.decoder == "h264":
        shift, mask, length_at = 0, 0x1F, 4
    elif config.decoder == "hevc":
        shift, mask, length_at = 1, 0x3F, 21
    else:
        return None
    header = config.extradata
    length_bytes = (header[length_at] & 3) + 1 if len(header) > length_at else 4
    types = []
    at = 0
    while at + length_bytes < len(packet):
        types.append(packet[at + length_bytes] >> shift & mask)
        at += length_bytes + int.from_bytes(packet[at : at + length_bytes], "big")
    return types


def begins_afresh(types: list[int] | None, config: CodecConfig) -> bool:
    """Return whether decoding may begin with a key packet of these units. Pure.

    An H.264 key packet may also be a recovery point (open GOP, intra refresh), after which pictures
    can still refer to what came before; only an IDR picture rules that out. In HEVC and AV1 nothing
    shown after a key picture refers to what came before it.
    """
    if types is None:
        return True
    if config.decoder == "h264":
        return _H264_IDR in types
    return not _HEVC_KEYS.isdisjoint(types)


def carries_parameters(types: list[int] | None, config: CodecConfig) -> bool:
    """Return whether a packet changes the decoder's parameter sets. Pure."""
    if types is None:
        return False
    parameters = _H264_PARAMETERS if config.decoder == "h264" else _HEVC_PARAMETERS
    return not parameters.isdisjoint(types)
