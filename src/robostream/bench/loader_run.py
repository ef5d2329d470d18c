# SPDX-License-Identifier: Apache-2.0
"""The process `robostream bench loader` starts for each measurement: one contestant, one pass.

python -m robostream.bench.loader_run '{"contestant": ..., "root": ..., ...}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from robostream.bench.memory import tree_bytes
from robostream.bench.plain.dataset import PlainDataset
from robostream.bench.plain.pyav_reader import PyavReader
from robostream.bench.stretches import START_STRETCHES, stretch_rates
from robostream.loader import (
    StreamingDataLoader,
    StreamingLeRobotDataset,
    batch_bytes,
    frame_budget,
    usable_memory,
)
from robostream.meta import LeRobotDatasetMetadata

_EPOCHS = 2


def run_peer(root: str, options: dict[str, Any]) -> dict[str, Any]:
    """Read random samples through the plain map-style dataset and DataLoader workers."""
    dataset = PlainDataset(root, options["offsets"], PyavReader())
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(
        dataset, options["batch_size"], sampler=sampler, num_workers=options["workers"]
    )
    batches = islice(loader, options["max_batches"])
    return _consume(batches, dataset.meta.camera_keys, time.perf_counter())


def find_memory(root: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the memory that decoded pictures may take; no more than is there to be touched."""
    loader = _open(root, options)
    needed = frame_budget(loader).nbytes
    loader.close()
    return {"bytes": min(needed, usable_memory() // 2)}


def run_robostream(root: str, options: dict[str, Any]) -> dict[str, Any]:
    """Stream two epochs, from the first moment on."""
    begin = time.perf_counter()
    loader = _open(root, options)
    batches: Iterator[Any] = (batch for _ in range(_EPOCHS) for batch in loader)
    if options["seconds"]:
        batches = _for_a_while(batches, options["seconds"])
    result = _consume(batches, loader.stream.meta.camera_keys, begin)
    stats = loader.stats()
    frames = frame_budget(loader)
    result |= {
        "amplification": stats["amplification"],
        "wait_s": stats["dataloading_s"],
        "frame_cache_bytes": frames.nbytes,
        "frame_cache_reason": frames.reason,
        "batch_bytes": batch_bytes(loader),
        "batches_ahead": loader.prefetch_factor,
        "lanes": loader.stream.lanes,
        "tree_bytes": tree_bytes(),
    }
    loader.close()
    return result


def _open(root: str, options: dict[str, Any]) -> StreamingDataLoader:
    settings = {"return_uint8": True} | options["options"]
    fps = LeRobotDatasetMetadata("bench/loader", root=root).fps
    stream = StreamingLeRobotDataset(
        "bench/loader", root=root, delta_timestamps=_windows(root, options, fps), **settings
    )
    return StreamingDataLoader(stream, options["batch_size"], num_workers=options["workers"])


def _for_a_while(batches: Iterator[Any], seconds: float) -> Iterator[Any]:
    """Yield what comes within some seconds after the first."""
    yield next(batches)
    until = time.perf_counter() + seconds
    for batch in batches:
        yield batch
        if time.perf_counter() > until:
            return


def _windows(root: str, options: dict[str, Any], fps: int) -> dict[str, list[float]] | None:
    if len(options["offsets"]) == 1:
        return None
    cameras = LeRobotDatasetMetadata("bench/loader", root=root).camera_keys
    return {key: [offset / fps for offset in options["offsets"]] for key in cameras}


def _consume(batches: Iterator[Any], cameras: list[str], begin: float) -> dict[str, Any]:
    """Return images/s from the first batch on, when that came, and the rate in each stretch."""
    first = next(batches)
    started = time.perf_counter()
    # (batch, channels, height, width), with one more axis for a window
    per_sample = sum(first[key].shape[1] if first[key].ndim == 5 else 1 for key in cameras)
    del first
    arrivals_s, images = [], []
    for batch in batches:
        arrivals_s.append(time.perf_counter() - started)
        images.append(len(batch[cameras[0]]) * per_sample)
    images_per_s = sum(images) / (time.perf_counter() - started)
    rates = stretch_rates(arrivals_s, images) if images else []
    return {
        "images_per_s": images_per_s,
        "samples_per_s": images_per_s / per_sample,
        "first_batch_s": started - begin,
        "rates": [round(rate) for rate in rates],
        "lowest_over_median": _lowest_over_median(rates),
    }


def _lowest_over_median(rates: list[float]) -> float:
    middle = median(rates) if rates else 0.0
    return min(rates[:START_STRETCHES]) / middle if middle else 1.0


def main(request: dict[str, Any]) -> None:
    """Run what a request asks for and print the figures as JSON."""
    torch.set_num_threads(1)
    contestants = {"peer": run_peer, "robostream": run_robostream, "memory": find_memory}
    print(json.dumps(contestants[request["contestant"]](request["root"], request)))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
