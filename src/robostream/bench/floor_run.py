# SPDX-License-Identifier: Apache-2.0
"""The processes `bench.floor` starts: each decodes its share of the files.

python -m robostream.bench.floor_run in_order|at_random|pictures SECONDS FILE FILE ...
"""

from __future__ import annotations

import io
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import av
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


@dataclass(frozen=True, slots=True)
class _Packets:
    decoder: str
    packets: list[av.Packet[av.VideoStream]]


def _load(file: str) -> _Packets:
    with av.open(file) as container:
        decoder = container.streams.video[0].codec_context.name
        return _Packets(decoder, [p for p in container.demux(video=0) if p.size])


def _decode_one_at_random(video: _Packets) -> Iterator[int]:
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
    with av.open(file) as container:
        container.streams.video[0].thread_count = 1
        for _ in container.decode(video=0):
            yield 1


def _decode_pictures(file: str) -> Iterator[int]:
    for group in range((parquet := pq.ParquetFile(file)).num_row_groups):
        for column in parquet.read_row_group(group).columns:
            if pa.types.is_struct(column.type):
                for picture in column.to_pylist():
                    Image.open(io.BytesIO(picture["bytes"])).load()
                    yield 1


def _decode_all(decode: Callable[[Any], Iterator[int]], files: list[Any], at_most_s: float) -> int:
    """Return the images of all files, or as many as there is time for, over and over."""
    until = time.perf_counter() + at_most_s
    images = 0
    for file in itertools.cycle(files) if at_most_s else files:
        for one in decode(file):
            images += one
            if at_most_s and time.perf_counter() >= until:
                return images
    return images


def main(how: str, at_most_s: float, files: list[str]) -> None:
    """Decode one process's share and print [images, seconds]."""
    # At random, packets are read before the clock starts.
    given = [_load(file) for file in files] if how == "at_random" else files
    decode: dict[str, Callable[[Any], Iterator[int]]] = {
        "in_order": _decode_in_order,
        "at_random": _decode_one_at_random,
        "pictures": _decode_pictures,
    }
    begin = time.perf_counter()
    print(json.dumps([_decode_all(decode[how], given, at_most_s), time.perf_counter() - begin]))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
