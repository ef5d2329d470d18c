# SPDX-License-Identifier: Apache-2.0
"""The floors: how fast the same videos are decoded alone, in order and at random.

In processes, as many as a loader has workers: threads would wait for Python's lock.

    python -m robostream.bench.floor in_order FILE FILE ...
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import av
import numpy as np


def decode_floor(files: Sequence[str], processes: int) -> float:
    """Return images/s of PyAV decoding files from first frame to last, with nothing else to do.

    Each process decodes its share of the files on one thread; no colour conversion.
    """
    return _run("in_order", files, processes)


def random_floor(files: Sequence[str], processes: int) -> float:
    """Return images/s of decoding every image by itself, in random order.

    From the key packet before it, with packets that lie in memory and a decoder that stays open.
    For codecs without reordering; no colour conversion.
    """
    return _run("at_random", files, processes)


def _run(how: str, files: Sequence[str], processes: int) -> float:
    command = [sys.executable, "-m", "robostream.bench.floor", how]
    running = [
        subprocess.Popen([*command, *share], stdout=subprocess.PIPE, text=True)
        for share in _shares(files, processes)
    ]
    results = [json.loads(process.communicate()[0]) for process in running]
    return float(sum(images for images, _ in results) / max(seconds for _, seconds in results))


def _shares(files: Sequence[str], processes: int) -> list[list[str]]:
    """Return the files dealt out so that all shares have about as many bytes."""
    shares: list[list[str]] = [[] for _ in range(min(processes, len(files)))]
    sizes = [0] * len(shares)
    for file in sorted(files, key=os.path.getsize, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(file)
        sizes[least] += os.path.getsize(file)
    return shares


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
