# SPDX-License-Identifier: Apache-2.0
"""The process `robostream bench loader` starts for each measurement: one contestant, one pass.

python -m robostream.bench.loader_run '{"contestant": ..., "root": ..., ...}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler

from robostream.bench.floor import decode_floor
from robostream.bench.memory import peak_bytes
from robostream.bench.peer import PlainPyavDataset
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset

_EPOCHS = 2


def run_floor(root: str, options: dict[str, Any]) -> dict[str, float]:
    """Decode all videos of the dataset alone."""
    files = sorted(str(path) for path in Path(root).glob("videos/**/*.mp4"))
    images, seconds = decode_floor(files, options["threads"])
    return {"images_per_s": images / seconds}


def run_peer(root: str, options: dict[str, Any]) -> dict[str, float]:
    """Read random samples through the plain map-style dataset and DataLoader workers."""
    dataset = PlainPyavDataset(root, options["offsets"])
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(0))
    loader = DataLoader(
        dataset, options["batch_size"], sampler=sampler, num_workers=options["threads"]
    )
    return _consume(iter(loader), options, dataset.meta.camera_keys, time.perf_counter())


def run_robostream(root: str, options: dict[str, Any]) -> dict[str, float]:
    """Stream two epochs: in the first, memory is touched for the first time.

    The dataset is larger than the frame cache, so nothing is kept from one to the next.
    """
    begin = time.perf_counter()
    stream = StreamingLeRobotDataset(
        "bench/loader",
        root=root,
        return_uint8=True,
        delta_timestamps=options["deltas"] or None,
        decode_threads=options["threads"],
        frame_cache_bytes=options["frame_cache_bytes"],
        episode_pool_size=options["pool"],
        lanes=options["pool"],
    )
    loader = StreamingDataLoader(stream, options["batch_size"])
    batches = chain.from_iterable(loader for _ in range(_EPOCHS))
    result = _consume(batches, options, stream.meta.camera_keys, begin)
    stats = loader.stats()
    return result | {"amplification": stats["amplification"], "wait_s": stats["dataloading_s"]}


def _consume(
    batches: Any, options: dict[str, Any], cameras: list[str], begin: float
) -> dict[str, float]:
    """Return images/s from the first batch on, and the seconds until it came."""
    first = next(batches)
    first_batch_s = time.perf_counter() - begin
    # (batch, channels, height, width), with one more axis for a window
    per_sample = sum(first[key].shape[1] if first[key].ndim == 5 else 1 for key in cameras)
    del first
    started, samples = time.perf_counter(), 0
    for batch in islice(batches, options["max_batches"]):
        samples += len(batch[cameras[0]])
    seconds = time.perf_counter() - started
    return {
        "images_per_s": samples * per_sample / seconds,
        "samples_per_s": samples / seconds,
        "first_batch_s": first_batch_s,
    }


def main(request: dict[str, Any]) -> None:
    """Run what a request asks for and print the figures as JSON."""
    torch.set_num_threads(1)
    contestants = {"floor": run_floor, "peer": run_peer, "robostream": run_robostream}
    result = contestants[request["contestant"]](request["root"], request)
    print(json.dumps(result | {"peak_bytes": peak_bytes(), "process": os.getpid()}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
