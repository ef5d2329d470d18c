# SPDX-License-Identifier: Apache-2.0
"""Joins the videos of several episodes into one MP4, packet by packet, and splits it again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path

import av

from robostream.errors import WriteError


@dataclass(frozen=True, slots=True)
class VideoPart:
    """One episode's video and the frame of the joined file at which it starts.

    Attributes:
        reorder_frames: How many frames at most are stored ahead of one that is shown earlier.
    """

    path: Path
    start_frame: int
    num_frames: int
    reorder_frames: int


def join_videos(parts: Sequence[VideoPart], target: Path, *, rate: Fraction) -> None:
    """Write one MP4, its index first, in which frame k is shown at exactly k / rate.

    The parts must follow one another without a gap and have equal codec parameters.
    """
    # A packet has two times: `dts`, when it is decoded, and `pts`, when it is shown. `dts` grows by
    # one from packet to packet and must never be later than `pts`. So all packets are decoded
    # `ahead` frames early: as many as the part with the most reordering needs.
    ahead = max(part.reorder_frames for part in parts)
    with (
        av.open(str(target), "w", format="mp4", options={"movflags": "faststart"}) as output,
        av.open(str(parts[0].path)) as first,
    ):
        stream = output.add_stream_from_template(first.streams.video[0], opaque=True)
        stream.time_base = 1 / rate
        for part in parts:
            for place, packet in enumerate(iter_packets(part.path, rate)):
                packet.stream = stream
                packet.time_base = 1 / rate
                packet.dts = part.start_frame + place - ahead
                packet.pts = part.start_frame + int(packet.pts or 0)
                packet.duration = 1
                output.mux(packet)
    _check_length(target, parts, rate)


def split_videos(joined: Path, parts: Sequence[VideoPart], *, rate: Fraction) -> None:
    """Write each part of a joined MP4 to its path: the reverse of `join_videos`."""
    packets = iter_packets(joined, rate)
    with av.open(str(joined)) as source:
        for part in parts:
            with av.open(str(part.path), "w", format="mp4") as output:
                stream = output.add_stream_from_template(source.streams.video[0], opaque=True)
                stream.time_base = 1 / rate
                for place, packet in enumerate(islice(packets, part.num_frames)):
                    packet.stream = stream
                    packet.time_base = 1 / rate
                    packet.dts = place - part.reorder_frames
                    packet.pts = int(packet.pts or 0) - part.start_frame
                    packet.duration = 1
                    output.mux(packet)
            _check_length(part.path, [part], rate)


def iter_packets(path: Path, rate: Fraction) -> Iterator[av.Packet[av.VideoStream]]:
    """Yield a video's packets in stored order, their `pts` counted in frames."""
    with av.open(str(path)) as source:
        stream = source.streams.video[0]
        for packet in source.demux(stream):
            if packet.pts is None or packet.time_base is None:
                continue  # the empty packet that ends a stream
            frame = packet.pts * packet.time_base * rate
            if frame.denominator != 1:
                raise WriteError(
                    f"{path}: want every frame at a multiple of {float(1 / rate)} s, found one at "
                    f"{float(frame / rate)} s. Resume the dataset: that sets this episode aside."
                )
            packet.pts = int(frame)
            yield packet


def _check_length(target: Path, parts: Sequence[VideoPart], rate: Fraction) -> None:
    want = sum(part.num_frames for part in parts)
    with av.open(str(target)) as joined:
        stream = joined.streams.video[0]
        length_s = (stream.duration or 0) * (stream.time_base or Fraction(0))
        if stream.frames != want or length_s != want / rate:
            raise WriteError(
                f"{target}: want {want} frames over {float(want / rate)} s in the joined video, "
                f"found {stream.frames} over {float(length_s)} s. Each saved episode is still in "
                "its own folder: resume the dataset to join them again."
            )
