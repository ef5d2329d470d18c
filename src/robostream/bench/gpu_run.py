# SPDX-License-Identifier: Apache-2.0
"""The processes of `bench gpu`: a loader that delivers batches on the GPU, or decoding alone."""

from __future__ import annotations

import multiprocessing
import random
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from robostream.bench.measure import Batch, consume, limit_time, loading_figures
from robostream.bench.results import Figures
from robostream.decode import Backend, FileRun, build_index, plan_runs
from robostream.device import open_nvdec
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.storage import LocalSource

RGB, YUV, NVDEC = "rgb", "yuv", "nvdec"
_GPU = "cuda:0"
_TIMEOUT_S = 120.0


def measure_loader(root: str, request: dict[str, Any]) -> Figures:
    """Deliver batches on the GPU for some seconds after the first; return the rates."""
    torch.set_num_threads(1)
    way = request["way"]
    begin = time.perf_counter()
    loader = _open_loader(root, request)
    opened_s = time.perf_counter() - begin
    images = len(loader.stream.meta.camera_keys) * len(request["window_s"])
    usages: list[list[float]] = []
    with ExitStack() as stack:

        def on_batch(batch: Batch) -> None:
            if not usages:  # from the first batch on
                usages.append(stack.enter_context(decoder_usage()) if way == NVDEC else [])

        batches = limit_time(_batches_on_gpu(loader, way), request["seconds"])
        times = consume(batches, on_batch=on_batch, finish=torch.cuda.synchronize)
    figures = loading_figures(times, images_per_sample=images, opened_s=opened_s)
    del figures["lowest_over_median"]
    figures["decoded_per_delivered"] = loader.stats()["amplification"]
    figures["decoders_in_use"] = _first(usages[0])
    loader.close()
    return figures


def _open_loader(root: str, request: dict[str, Any]) -> StreamingDataLoader:
    way, window_s = request["way"], request["window_s"]
    windows = None
    if len(window_s) > 1:
        cameras = StreamingLeRobotDataset("bench/gpu", root=root).meta.camera_keys
        windows = {key: list(window_s) for key in cameras}
    stream = StreamingLeRobotDataset(
        "bench/gpu",
        root=root,
        return_uint8=True,
        delta_timestamps=windows,
        resize=None if request["resize"] is None else tuple(request["resize"]),
        frame_cache_bytes=request["frame_cache_bytes"],
        video_decode_device=_GPU if way == NVDEC else "cpu",
    )
    return StreamingDataLoader(
        stream,
        request["batch_size"],
        num_workers=request["workers"],
        pin_memory=way == RGB,
        device=None if way == RGB else _GPU,
    )


def _batches_on_gpu(loader: StreamingDataLoader, way: str) -> Iterator[Batch]:
    """Yield the batches of all epochs; the first only when its copy is complete."""
    is_first = True
    while True:
        for batch in loader:
            if way == RGB:
                batch = {
                    key: value.to(_GPU, non_blocking=True) if torch.is_tensor(value) else value
                    for key, value in batch.items()
                }
            if is_first:
                torch.cuda.synchronize()
                is_first = False
            yield batch


def measure_streams(root: str, request: dict[str, Any]) -> Figures:
    """Decode random GOPs on the GPU in several processes; return the rates by their number.

    All processes start at once, because that takes long; then more and more of them decode.
    """
    counts, spawn = request["streams"], multiprocessing.get_context("spawn")
    barrier, rates = spawn.Barrier(max(counts) + 1), spawn.Queue()
    processes = [
        spawn.Process(target=_decode, args=(number, root, request, barrier, rates))
        for number in range(max(counts))
    ]
    for process in processes:
        process.start()
    found = []
    for count in counts:
        barrier.wait(_TIMEOUT_S)
        with decoder_usage() as in_use:
            rate = sum(rates.get(timeout=_TIMEOUT_S) for _ in range(count))
        found.append({"streams": count, "images_per_s": rate, "decoders_in_use": _first(in_use)})
    for process in processes:
        process.join()
    return {"by_streams": found}


def _decode(number: int, root: str, request: dict[str, Any], barrier: Any, rates: Any) -> None:
    runs = _gops(root)
    random.shuffle(runs)
    backend = open_nvdec(_GPU)
    list(backend.decode(runs[:4]))
    for count in request["streams"]:
        barrier.wait(_TIMEOUT_S)
        if number < count:
            rates.put(_decode_rate(backend, runs, request["seconds"]))


def _decode_rate(backend: Backend, runs: list[FileRun], seconds: float) -> float:
    images, at, begin = 0, 0, time.perf_counter()
    while time.perf_counter() < begin + seconds:
        images += sum(1 for _ in backend.decode(runs[at : at + 16]))
        at = (at + 16) % len(runs)
    torch.cuda.synchronize()
    return images / (time.perf_counter() - begin)


def _gops(root: str) -> list[FileRun]:
    """Return GOPs of a dataset's videos, at most the first 64 frames of each."""
    runs = []
    for path in sorted(Path(root).glob("videos/*/*/*.mp4"))[:24]:
        source = LocalSource(path)
        index = build_index(source)
        starts = index.start_frames.tolist()
        for start, stop in zip(starts, [*starts[1:], index.num_frames], strict=True):
            frames = list(range(start, min(stop, start + 64)))
            runs.append(FileRun(source, index, plan_runs(index, frames)[0]))
    return runs


@contextmanager
def decoder_usage() -> Iterator[list[float]]:
    """Append the mean utilisation of the GPU's decoders during the block to a list, at its end."""
    command = ["nvidia-smi", "-i", "0", "--query-gpu=utilization.decoder", "-lms", "250"]
    found: list[float] = []
    monitor = subprocess.Popen(
        [*command, "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True
    )
    try:
        yield found
    finally:
        monitor.terminate()
        lines = monitor.communicate()[0].split()
        shares = [float(line) / 100 for line in lines if line.isdigit()]
        if shares:
            found.append(sum(shares) / len(shares))


def _first(values: list[float]) -> float | None:
    return values[0] if values else None
