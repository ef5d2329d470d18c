# SPDX-License-Identifier: Apache-2.0
"""The process `robostream bench gpu` starts for each measurement.

python -m robostream.bench.gpu.one_run '{"root": ..., "way": "yuv", ...}'
"""

from __future__ import annotations

import json
import multiprocessing
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from robostream.bench.gpu.cases import NVDEC, RGB
from robostream.bench.stretches import stretch_rates
from robostream.decode import Backend, FileRun, build_index, open_nvdec, plan_runs
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset
from robostream.storage import LocalSource

_GPU = "cuda:0"
# A process that has not answered after so long has ended.
_PATIENCE_S = 120.0


def run_loader(request: dict[str, Any]) -> dict[str, Any]:
    """Deliver batches on the GPU for some seconds, from the first on."""
    began = time.perf_counter()
    way, window = request["way"], request["window_s"]
    loader = _open(request)
    cameras = loader.stream.meta.camera_keys
    batches = (_on_gpu(batch, way) for _ in range(1000) for batch in loader)
    _settle(next(batches))
    first = time.perf_counter()
    arrivals_s: list[float] = []
    images: list[int] = []
    watched: AbstractContextManager[list[float]] = (
        decoders_in_use() if way == NVDEC else nullcontext([])
    )
    with watched as in_use:
        for batch in batches:
            arrivals_s.append(time.perf_counter() - first)
            images.append(len(batch[cameras[0]]) * len(cameras) * len(window))
            if arrivals_s[-1] > request["seconds"]:
                break
        _settle(batch)
        images_per_s = sum(images) / (time.perf_counter() - first)
    figures = {
        "images_per_s": images_per_s,
        "samples_per_s": images_per_s / (len(cameras) * len(window)),
        "first_batch_s": first - began,
        "rates": [round(rate) for rate in stretch_rates(arrivals_s, images)],
        "decoded_per_delivered": loader.stats()["amplification"],
        "decoders_in_use": _first(in_use),
    }
    loader.close()
    return figures


def _open(request: dict[str, Any]) -> StreamingDataLoader:
    way, window = request["way"], request["window_s"]
    stream = StreamingLeRobotDataset(
        "bench/gpu",
        root=request["root"],
        return_uint8=True,
        delta_timestamps=None if len(window) == 1 else _windows(request["root"], window),
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


def run_streams(request: dict[str, Any]) -> dict[str, Any]:
    """Decode GOPs at random on the GPU, in several processes, with nothing else to do.

    All are started at once, because that takes long; then more and more of them decode.
    """
    counts, spawn = request["streams"], multiprocessing.get_context("spawn")
    together, rates = spawn.Barrier(max(counts) + 1), spawn.Queue()
    processes = [
        spawn.Process(target=_decode, args=(number, request, together, rates))
        for number in range(max(counts))
    ]
    for process in processes:
        process.start()
    found = []
    for count in counts:
        together.wait(_PATIENCE_S)
        with decoders_in_use() as in_use:
            rate = sum(rates.get(timeout=_PATIENCE_S) for _ in range(count))
        found.append({"streams": count, "images_per_s": rate, "decoders_in_use": _first(in_use)})
    for process in processes:
        process.join()
    return {"by_streams": found}


def _decode(number: int, request: dict[str, Any], together: Any, rates: Any) -> None:
    runs = _gops(request["root"])
    random.shuffle(runs)
    backend = open_nvdec(_GPU)
    list(backend.decode(runs[:4]))
    for count in request["streams"]:
        together.wait(_PATIENCE_S)
        if number < count:
            rates.put(_rate(backend, runs, request["seconds"]))


def _rate(backend: Backend, runs: list[FileRun], seconds: float) -> float:
    images, at, began = 0, 0, time.perf_counter()
    while time.perf_counter() < began + seconds:
        images += sum(1 for _ in backend.decode(runs[at : at + 16]))
        at = (at + 16) % len(runs)
    torch.cuda.synchronize()
    return images / (time.perf_counter() - began)


def _gops(root: str) -> list[FileRun]:
    """Return GOPs of a dataset's videos, or the first frames of long ones."""
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
def decoders_in_use() -> Iterator[list[float]]:
    """Put the mean share of the GPU's decoders in use during the block into a list, at its end."""
    command = ["nvidia-smi", "-i", "0", "--query-gpu=utilization.decoder", "-lms", "250"]
    found: list[float] = []
    watch = subprocess.Popen(
        [*command, "--format=csv,noheader,nounits"], stdout=subprocess.PIPE, text=True
    )
    try:
        yield found
    finally:
        watch.terminate()
        lines = watch.communicate()[0].split()
        shares = [float(line) / 100 for line in lines if line.isdigit()]
        if shares:
            found.append(sum(shares) / len(shares))


def _first(values: list[float]) -> float | None:
    return values[0] if values else None


def _on_gpu(batch: dict[str, Any], way: str) -> dict[str, Any]:
    if way != RGB:
        return batch
    return {
        key: value.to(_GPU, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }


def _settle(batch: dict[str, Any]) -> None:
    """Wait until a batch is there."""
    del batch
    torch.cuda.synchronize()


def _windows(root: str, window: list[float]) -> dict[str, list[float]]:
    cameras = StreamingLeRobotDataset("bench/gpu", root=root).meta.camera_keys
    return {key: list(window) for key in cameras}


if __name__ == "__main__":
    request = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    measure = run_streams if request["streams"] else run_loader
    print(json.dumps(measure(request)))
