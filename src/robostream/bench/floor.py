# SPDX-License-Identifier: Apache-2.0
"""The floors: how fast the same videos are decoded alone, in order and at random.

As many processes decode as a loader has workers. Threads would wait for Python's lock.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence


def decode_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of PyAV decoding files from first frame to last, with nothing else to do.

    Each process decodes its share of the files on one thread, without colour conversion. With a
    limit in seconds, each decodes its files over and over until the time is up, so that all
    processes are busy for equally long.
    """
    return _run("in_order", files, processes, at_most_s)


def picture_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of Pillow decoding all pictures stored in Parquet files, as above."""
    return _run("pictures", files, processes, at_most_s)


def random_floor(files: Sequence[str], processes: int, *, at_most_s: float = 0.0) -> float:
    """Return images/s of decoding every image by itself, in random order.

    Each is decoded from the key packet before it. All packets lie in memory, the decoder stays
    open, and there is no colour conversion. Only for codecs that do not reorder frames.
    """
    return _run("at_random", files, processes, at_most_s)


def _run(how: str, files: Sequence[str], processes: int, at_most_s: float) -> float:
    command = [sys.executable, "-m", "robostream.bench.floor_run", how, str(at_most_s)]
    shares = _shares(files, processes)
    if at_most_s:  # with fewer files than processes, some decode the same ones
        shares = [shares[number % len(shares)] for number in range(processes)]
    running = [
        subprocess.Popen([*command, *share], stdout=subprocess.PIPE, text=True) for share in shares
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
