# SPDX-License-Identifier: Apache-2.0
"""Measurements in processes of their own: their results, their memory, and the decode floor.

A measuring process calls `main`, which reads a pickled function and its arguments, calls it and
prints its result as a line of JSON.

The decode floor is how fast the same images are decoded with nothing else to do. As many processes
decode as a loader has workers; threads would wait for Python's lock.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robostream.errors import RobostreamError

# Decodes a file from the beginning. Only the measuring processes do, so the functions that open
# files import what they decode with.
Decode = Callable[[], Iterator[object]]
_EVERY_S = 0.5
# Reading PSS makes the kernel walk all pages, so it is sampled less often than RSS.
_SAMPLES_PER_PSS = 4
_MOST_POINTS = 240


class MeasurementError(RobostreamError):
    """A measuring process failed; `reason` is the last line of its standard error."""

    def __init__(self, function: Callable[..., Any], text: str) -> None:
        self.reason = text.strip().splitlines()[-1] if text.strip() else "no message"
        super().__init__(f"{function.__name__} failed: {text.strip() or self.reason}")


def run_process(
    function: Callable[..., Any],
    *,
    environment: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
    **arguments: Any,
) -> Any:
    """Return the result of a function, a JSON value, called in a new process. Blocks.

    The process has the variables of this one and those of `environment`.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-c", "from robostream.bench.processes import main; main()"],
            input=pickle.dumps((function, arguments)),
            env={**os.environ, **(environment or {})},
            timeout=timeout_s,
            capture_output=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MeasurementError(function, f"not done after {timeout_s:g} s") from error
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace")
        raise MeasurementError(function, text or f"exit code {done.returncode}")
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Call the function, print its result and exit."""
    function, arguments = pickle.load(sys.stdin.buffer)
    print(json.dumps(function(**arguments)), flush=True)
    # The workers of some loaders take long to stop. All figures are printed, so skip the wait.
    os._exit(0)


def resident_bytes(*, peak: bool = False) -> int:
    """Return the resident memory of this process, now or at its peak."""
    # Not getrusage(): its peak is inherited from the process that started this one.
    found = _read_bytes(os.getpid(), "status", "VmHWM" if peak else "VmRSS")
    if not found:
        raise OSError("/proc/self/status has no memory; it can be measured on Linux only")
    return found


def tree_bytes(*, shared_once: bool = True) -> int:
    """Return the memory of this process and its descendants.

    Shared pages are counted once (PSS), or in each process (RSS).
    """
    file, name = ("smaps_rollup", "Pss") if shared_once else ("status", "VmRSS")
    return sum(_read_bytes(process, file, name) for process in _tree(os.getpid()))


def _tree(process: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{process}/task").iterdir()
        children = [c for task in tasks for c in (task / "children").read_text().split()]
    except OSError:
        children = []
    return [process, *(found for child in children for found in _tree(int(child)))]


def _read_bytes(process: int, file: str, name: str) -> int:
    """Return a field of a file in /proc; 0 if the process has ended."""
    try:
        lines = Path(f"/proc/{process}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def touch_memory(nbytes: int) -> float:
    """Allocate memory, write to each page and free it; return the bytes written per second.

    A virtual machine may have returned unused memory to its host; the first write to such a page
    waits for it.
    """
    began = time.perf_counter()
    np.empty(nbytes + 1, np.uint8)[:: os.sysconf("SC_PAGE_SIZE")] = 1
    return nbytes / (time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class MemoryCurves:
    """The memory of this process and its descendants, as (seconds since the start, bytes)."""

    rss: list[tuple[float, int]] = field(default_factory=list)  # shared pages in each process
    pss: list[tuple[float, int]] = field(default_factory=list)  # shared pages once; fewer samples

    def figures(self) -> dict[str, Any]:
        """Return the peaks in GB, and a limited number of points as [seconds, GB]."""
        found: dict[str, Any] = {}
        for kind, points in (("rss", self.rss), ("pss", self.pss)):
            thin = points[:: -(-len(points) // _MOST_POINTS)]
            found[f"peak_{kind}_gb"] = max(size for _, size in points) / 1e9
            found[f"{kind}_gb_over_time"] = [[round(at, 1), round(b / 1e9, 3)] for at, b in thin]
        return found


@contextmanager
def sample_memory() -> Iterator[MemoryCurves]:
    """Sample the memory twice a second during the block, and at its end."""
    curves, done, began = MemoryCurves(), threading.Event(), time.perf_counter()

    def sample() -> None:
        is_done = False
        while not is_done:
            is_done = done.wait(_EVERY_S if curves.rss else 0)
            now = time.perf_counter() - began
            if is_done or len(curves.rss) % _SAMPLES_PER_PSS == 0:
                curves.pss.append((now, tree_bytes()))
            curves.rss.append((now, tree_bytes(shared_once=False)))

    thread = threading.Thread(target=sample, name="memory sampler", daemon=True)
    thread.start()
    try:
        yield curves
    finally:
        done.set()
        thread.join()


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
    sizes = {file: os.path.getsize(file) for file in files}
    shares: list[list[str]] = [[] for _ in range(min(processes, len(files)))]
    for file in sorted(files, key=sizes.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(map(sizes.__getitem__, share))).append(file)
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
