# SPDX-License-Identifier: Apache-2.0
"""The processes `bench.floor` starts: each decodes its share of the files.

python -m robostream.bench.floor_run in_order|at_random FILE FILE ...
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import av
import numpy as np


@dataclass(frozen=True, slots=True)
class _Packets:
    decoder: str
    packets: list[av.Packet[av.VideoStream]]


def _load(file: str) -> _Packets:
    with av.open(file) as container:
        decoder = container.streams.video[0].codec_context.name
        return _Packets(decoder, [p for p in container.demux(video=0) if p.size])


def _decode_at_random(videos: list[_Packets]) -> int:
    return sum(_decode_one_at_random(video) for video in videos)


def _decode_one_at_random(video: _Packets) -> int:
    context = av.CodecContext.create(video.decoder, "r")
    assert isinstance(context, av.VideoCodecContext)
    context.thread_count = 1
    keys = np.flatnonzero([packet.is_keyframe for packet in video.packets])
    for at in np.random.default_rng(0).permutation(len(video.packets)):
        first = keys[np.searchsorted(keys, at, "right") - 1]
        for packet in (*video.packets[first : at + 1], None):
            context.decode(packet)
        context.flush_buffers()
    return len(video.packets)


def _decode_in_order(files: list[str]) -> int:
    images = 0
    for file in files:
        with av.open(file) as container:
            container.streams.video[0].thread_count = 1
            images += sum(1 for _ in container.decode(video=0))
    return images


def main(how: str, files: list[str]) -> None:
    """Decode one process's share and print [images, seconds]."""
    work: Callable[[], int]
    if how == "in_order":
        work = lambda: _decode_in_order(files)  # noqa: E731  # the two differ in what is loaded
    else:
        videos = [_load(file) for file in files]
        work = lambda: _decode_at_random(videos)  # noqa: E731
    begin = time.perf_counter()
    print(json.dumps([work(), time.perf_counter() - begin]))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
