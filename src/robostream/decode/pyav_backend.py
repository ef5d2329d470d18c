# SPDX-License-Identifier: Apache-2.0
"""Decoding through bare codec contexts of PyAV: no container, no seek, no system FFmpeg."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import av

from robostream.decode.av1 import stands_alone
from robostream.decode.backend import Piece
from robostream.decode.feeding import Chain, chain_up, feed, feed_chain
from robostream.decode.frame_index import CodecConfig
from robostream.decode.packets import begins_afresh, carries_parameters, read_packets
from robostream.decode.runs import start_earlier
from robostream.errors import VideoFileError

# There are as many set-ups as cameras with encoders of their own.
_IDLE_CONTEXTS = 8


class PyavBackend:
    """Feeds packets to codec contexts, one per codec set-up, reused across files. For one thread.

    A run that is decoded only in part keeps its context until its iterator is closed.
    """

    def __init__(self) -> None:
        self._idle: OrderedDict[CodecConfig, av.VideoCodecContext] = OrderedDict()

    def decode(self, pieces: Sequence[Piece]) -> Iterator[tuple[int, int, av.VideoFrame]]:
        """Yield (place, number, frame) for the frames of several runs."""
        for chain in chain_up(pieces):
            packets = [read_packets(piece.source, piece.index, piece.run) for _, piece in chain]
            pictures = self._decode_chain(chain, packets) if len(chain) > 1 else None
            if pictures is not None:
                yield from pictures
                continue
            for (place, piece), of_run in zip(chain, packets, strict=True):
                for number, frame in self._decode_run(piece, of_run):
                    yield place, number, frame

    def _decode_chain(
        self, chain: Chain, packets: list[list[memoryview]]
    ) -> list[tuple[int, int, av.VideoFrame]] | None:
        """Return the frames of runs fed one after the other, or None if anything is odd.

        What is odd is found out run by run, and then said with the right file's name.
        """
        if not all(map(stands_alone, packets)):
            return None
        config = chain[0][1].config
        context = self._take(config)
        try:
            pictures = feed_chain(context, chain, packets)
        except av.FFmpegError:
            return None
        if pictures is not None:
            self._give_back(config, context)
        return pictures

    def _decode_run(
        self, piece: Piece, packets: list[memoryview]
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        source, index, run, config = piece.source, piece.index, piece.run, piece.config
        asked = run
        while not begins_afresh(packets[0], config) and (earlier := start_earlier(index, run)):
            run = earlier
            packets = read_packets(source, index, run)
        context = self._take(config)
        try:
            yield from feed(context, packets, index, run, asked.first_frame)
        except av.FFmpegError as error:
            raise VideoFileError(
                f"{source.name}: frames {asked.first_frame} and on cannot be decoded "
                f"({error.strerror}). The file is damaged; download or copy it again."
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
    # Threads decode different runs; threads inside a decoder would only compete with them.
    context.thread_count = 1
    return context
