# SPDX-License-Identifier: Apache-2.0
"""The floor: how fast the same videos are decoded alone, from first frame to last."""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import av


def decode_floor(files: Iterable[str], threads: int) -> tuple[int, float]:
    """Return how many images the files hold and the seconds PyAV takes to decode them in order.

    Each file is decoded on one thread, `threads` files at a time; no colour conversion.
    """
    begin = time.perf_counter()
    with ThreadPoolExecutor(threads) as pool:
        images = sum(pool.map(_count_frames, files))
    return images, time.perf_counter() - begin


def _count_frames(file: str) -> int:
    with av.open(file) as container:
        container.streams.video[0].thread_count = 1
        return sum(1 for _ in container.decode(video=0))
