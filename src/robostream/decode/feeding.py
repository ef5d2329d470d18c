# SPDX-License-Identifier: Apache-2.0
"""Feeding packets to a decoder: run by run, or several short AV1 runs in one go.

An AV1 packet in an MP4 shows exactly one frame, and frames are shown in the order of packets, so
packets that a decoder can tell apart can be joined and the frames numbered as they come. Making a
packet, sending it and letting go of it hands Python's lock over four times; with two threads that
costs more than the packets' bytes do. Emptying and restarting a decoder between short runs costs as
much again.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import av

from robostream.decode.av1 import can_be_joined
from robostream.decode.backend import Piece
from robostream.decode.frame_index import CodecConfig, FrameIndex
from robostream.decode.runs import Run
from robostream.errors import VideoFileError

Chain = list[tuple[int, Piece]]

_DAV1D = "libdav1d"
# Packets per feeding; more are no quicker.
_JOINED = 8


def chain_up(pieces: Sequence[Piece]) -> list[Chain]:
    """Return the pieces with their places, those in one list that can be fed in one go. Pure."""
    chains: list[Chain] = []
    growing: dict[CodecConfig, tuple[Chain, int]] = {}
    for place, piece in enumerate(pieces):
        if not _is_joinable(piece.index, piece.run):
            chains.append([(place, piece)])
            continue
        packets = piece.run.stop_packet - piece.run.first_packet
        chain, total = growing.get(piece.config, (None, 0))
        if chain is None or total + packets > _JOINED:
            chain, total = [], 0
            chains.append(chain)
        chain.append((place, piece))
        growing[piece.config] = chain, total + packets
    return chains


def feed_chain(
    context: av.VideoCodecContext, chain: Chain, packets: list[list[memoryview]]
) -> list[tuple[int, int, av.VideoFrame]] | None:
    """Return (place, number, frame) for all packets of a chain, or None if they do not add up."""
    frames = context.decode(av.Packet(b"".join(itertools.chain.from_iterable(packets))))
    frames += context.decode(None)
    numbers = [
        (place, number)
        for place, piece in chain
        for number in range(piece.run.first_packet, piece.run.stop_packet)
    ]
    if len(frames) != len(numbers) or any(frame.is_corrupt for frame in frames):
        return None
    heads = itertools.accumulate((len(of_run) for of_run in packets[:-1]), initial=0)
    if not all(frames[head].key_frame for head in heads):
        return None  # a run has shown a frame too few, and another one too many
    return [(*number, frame) for number, frame in zip(numbers, frames, strict=True)]


def feed(
    context: av.VideoCodecContext,
    packets: list[memoryview],
    index: FrameIndex,
    run: Run,
    first_frame: int,
) -> Iterator[tuple[int, av.VideoFrame]]:
    """Yield (number, frame) for the packets of a run; -1 for frames before `first_frame`."""
    numbers = index.frames_of(run.first_packet, run.stop_packet)
    decoded: Iterator[tuple[int | None, av.VideoFrame]]
    if _is_joinable(index, run) and can_be_joined(packets):
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


def _is_joinable(index: FrameIndex, run: Run) -> bool:
    return index.configs[run.config].decoder == _DAV1D and index.frames is None


def _decode_singly(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int]
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode packet by packet; a frame's number rides through the decoder as its time stamp."""
    # The last packet is none at all: it makes the decoder give what it has held back.
    for packet in itertools.chain(map(_packet, packets, numbers), (None,)):
        for frame in context.decode(packet):
            yield frame.pts, frame


def _decode_joined(
    context: av.VideoCodecContext, packets: list[memoryview], numbers: list[int], file: str
) -> Iterator[tuple[int | None, av.VideoFrame]]:
    """Decode several AV1 packets at a time; each shows one frame, and they come in this order."""
    expected = iter(numbers)
    groups = (b"".join(packets[at : at + _JOINED]) for at in range(0, len(packets), _JOINED))
    for packet in itertools.chain(map(av.Packet, groups), (None,)):
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
