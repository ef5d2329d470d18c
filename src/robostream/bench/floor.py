# SPDX-License-Identifier: Apache-2.0
"""The floors: how fast the same videos are decoded alone, in order and at random."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import av
import numpy as np

T = TypeVar("T")


def decode_floor(files: Iterable[str], threads: int) -> tuple[int, float]:
    """Return how many images the files hold and the seconds PyAV takes to decode them in order.

    Each file is decoded on one thread, `threads` files at a time; no colour conversion.
    """
    return _time(_decode_in_order, list(files), threads)


def random_floor(files: Iterable[str], threads: int) -> tuple[int, float]:
    """Return how many images the files hold and the seconds to decode each of them by itself.

    In random order, from the key packet before it, with packets that lie in memory and a decoder
    that stays open. For codecs without reordering; no colour conversion.
    """
    return _time(_decode_at_random, [_load(file) for file in files], threads)


def _time(decode: Callable[[T], int], videos: list[T], threads: int) -> tuple[int, float]:
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        images = sum(pool.map(decode, videos))
    return images, time.perf_counter() - begin


@dataclass(frozen=True, slots=True)
class _Packets:
    decoder: str
    packets: list[av.Packet[av.VideoStream]]


def _load(file: str) -> _Packets:
    with av.open(file) as container:
        decoder = container.streams.video[0].codec_context.name
        return _Packets(decoder, [p for p in container.demux(video=0) if p.size])


def _decode_at_random(video: _Packets) -> int:
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


def _decode_in_order(file: str) -> int:
    with av.open(file) as container:
        container.streams.video[0].thread_count = 1
        return sum(1 for _ in container.decode(video=0))
