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
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from robostream.bench.processes import run_process

if TYPE_CHECKING:
    import av

# Only the measuring processes decode, so the functions below import what they decode with.


def decode_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of PyAV decoding files from the first frame to the last.

    Each process decodes its share of the files on one thread, without colour conversion. With a
    time limit, each repeats its files until the limit, so all processes are busy equally long.
    """
    return _measure("in_order", files, processes, at_most_s)


def image_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of Pillow decoding all images stored in Parquet files."""
    return _measure("images", files, processes, at_most_s)


def random_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of decoding each image separately, in random order.

    Each is decoded from its key frame on. All packets are in memory, the decoder stays open, and
    colours are not converted. Only for codecs that do not reorder frames.
    """
    return _measure("at_random", files, processes, at_most_s)


def _measure(order: str, files: Sequence[str], processes: int, at_most_s: float) -> float:
    shares = _shares(files, processes)
    if at_most_s:  # with fewer files than processes, several decode the same files
        shares = [shares[number % len(shares)] for number in range(processes)]

    def run(share: list[str]) -> Any:
        return run_process(decode_share, order=order, at_most_s=at_most_s, files=share)

    with ThreadPoolExecutor(len(shares)) as pool:
        results = list(pool.map(run, shares))
    return float(sum(images for images, _ in results) / max(seconds for _, seconds in results))


def _shares(files: Sequence[str], processes: int) -> list[list[str]]:
    """Return the files in shares of about equally many bytes."""
    shares: list[list[str]] = [[] for _ in range(min(processes, len(files)))]
    sizes = [0] * len(shares)
    for file in sorted(files, key=os.path.getsize, reverse=True):
        least = sizes.index(min(sizes))
        shares[least].append(file)
        sizes[least] += os.path.getsize(file)
    return shares


def decode_share(order: str, at_most_s: float, files: list[str]) -> tuple[int, float]:
    """Decode files in this process; return the number of images and the seconds."""
    decoders: dict[str, Callable[[Any], Iterator[int]]] = {
        "in_order": _decode_in_order,
        "at_random": _decode_at_random,
        "images": _decode_images,
    }
    # In random order, packets are read before the clock starts.
    videos = [_load_packets(file) for file in files] if order == "at_random" else files
    import av  # noqa: F401  # before the clock starts
    import pyarrow.parquet  # noqa: F401
    from PIL import Image  # noqa: F401

    begin = time.perf_counter()
    images = _decode_all(decoders[order], videos, at_most_s)
    return images, time.perf_counter() - begin


def _decode_all(decode: Callable[[Any], Iterator[int]], files: list[Any], at_most_s: float) -> int:
    """Return the number of images of all files, or of as many as the time allows."""
    until = time.perf_counter() + at_most_s
    images = 0
    for file in itertools.cycle(files) if at_most_s else files:
        for one in decode(file):
            images += one
            if at_most_s and time.perf_counter() >= until:
                return images
    return images


@dataclass(frozen=True, slots=True)
class _Packets:
    decoder: str
    packets: list[av.Packet[av.VideoStream]]


def _load_packets(file: str) -> _Packets:
    import av

    with av.open(file) as container:
        decoder = container.streams.video[0].codec_context.name
        return _Packets(decoder, [p for p in container.demux(video=0) if p.size])


def _decode_at_random(video: _Packets) -> Iterator[int]:
    import av
    import numpy as np

    context = av.CodecContext.create(video.decoder, "r")
    assert isinstance(context, av.VideoCodecContext)
    context.thread_count = 1
    keys = np.flatnonzero([packet.is_keyframe for packet in video.packets])
    for at in np.random.default_rng(0).permutation(len(video.packets)):
        first = keys[np.searchsorted(keys, at, "right") - 1]
        for packet in (*video.packets[first : at + 1], None):
            context.decode(packet)
        context.flush_buffers()
        yield 1


def _decode_in_order(file: str) -> Iterator[int]:
    import av

    with av.open(file) as container:
        container.streams.video[0].thread_count = 1
        for _ in container.decode(video=0):
            yield 1


def _decode_images(file: str) -> Iterator[int]:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    for group in range((parquet := pq.ParquetFile(file)).num_row_groups):
        for column in parquet.read_row_group(group).columns:
            if pa.types.is_struct(column.type):
                for image in column.to_pylist():
                    Image.open(io.BytesIO(image["bytes"])).load()
                    yield 1
