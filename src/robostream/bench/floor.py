# SPDX-License-Identifier: Apache-2.0
"""The decode floor: how fast the same images are decoded with nothing else to do.

As many processes decode as a loader has workers; threads would wait for Python's lock.
"""

from __future__ import annotations

import io
import itertools
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from robostream.bench.processes import run_process

# Decodes a file from the beginning. Only the measuring processes do, so the functions that open
# files import what they decode with.
Decode = Callable[[], Iterator[object]]


def decode_floor(
    files: Sequence[str], processes: int, *, at_most_s: float = 0.0, at_random: bool = False
) -> float:
    """Return images/s of decoding files without colour conversion, on one thread per process.

    PyAV decodes videos from the first frame to the last; Pillow decodes the images in Parquet
    files. Each process decodes its share of the files, repeatedly until `at_most_s` if that is
    given, so all are busy equally long.

    With `at_random`, each frame of videos is decoded separately, in random order, from its key
    frame on. All packets are in memory, and the decoder stays open. Only for codecs that do not
    reorder frames.
    """
    # Shares of about equally many bytes.
    shares: list[list[str]] = [[] for _ in range(min(processes, len(files)))]
    sizes = [0] * len(shares)
    for file in sorted(files, key=os.path.getsize, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(file)
        sizes[least] += os.path.getsize(file)
    if at_most_s:  # with fewer files than processes, several decode the same files
        shares = [shares[number % len(shares)] for number in range(processes)]

    def run(share: list[str]) -> Any:
        return run_process(decode_share, files=share, at_most_s=at_most_s, at_random=at_random)

    with ThreadPoolExecutor(len(shares)) as pool:
        results = list(pool.map(run, shares))
    return float(sum(images for images, _ in results) / max(seconds for _, seconds in results))


def decode_share(files: list[str], at_most_s: float, at_random: bool) -> tuple[int, float]:
    """Decode files in this process; return the number of images and the seconds."""
    if files[0].endswith(".parquet"):
        open_file = _open_parquet
    else:
        open_file = _open_packets if at_random else _open_video
    opened = [open_file(file) for file in files]
    turns = itertools.cycle(opened) if at_most_s else opened
    images, begin = 0, time.perf_counter()
    for _ in itertools.chain.from_iterable(decode() for decode in turns):
        images += 1
        if at_most_s and time.perf_counter() >= begin + at_most_s:
            break
    return images, time.perf_counter() - begin


def _open_video(file: str) -> Decode:
    import av

    def decode() -> Iterator[object]:
        with av.open(file) as container:
            container.streams.video[0].thread_count = 1
            yield from container.decode(video=0)

    return decode


def _open_packets(file: str) -> Decode:
    import av
    import numpy as np

    with av.open(file) as container:
        decoder = container.streams.video[0].codec_context.name
        packets = [packet for packet in container.demux(video=0) if packet.size]
    keys = np.flatnonzero([packet.is_keyframe for packet in packets])

    def decode() -> Iterator[object]:
        context: Any = av.CodecContext.create(decoder, "r")
        context.thread_count = 1
        for at in np.random.default_rng(0).permutation(len(packets)):
            first = keys[np.searchsorted(keys, at, "right") - 1]
            for packet in (*packets[first : at + 1], None):
                context.decode(packet)
            context.flush_buffers()
            yield at

    return decode


def _open_parquet(file: str) -> Decode:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    def decode() -> Iterator[object]:
        parquet = pq.ParquetFile(file)
        for group in range(parquet.num_row_groups):
            for column in parquet.read_row_group(group).columns:
                if pa.types.is_struct(column.type):
                    for image in column.to_pylist():
                        yield Image.open(io.BytesIO(image["bytes"])).load()

    return decode
