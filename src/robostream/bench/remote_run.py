# SPDX-License-Identifier: Apache-2.0
"""The process `robostream bench remote` starts for each measurement: two epochs of one stream.

python -m robostream.bench.remote_run '{"root": ..., "cache_dir": ..., "samples_per_s": ...}'

After each epoch it prints its figures and waits for a line, while the traffic is counted.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from robostream.bench.remote_need import count_cuts
from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset

_EPOCHS = 2


def main(request: dict[str, Any]) -> None:
    """Stream the epochs and print the figures of each as one line of JSON."""
    torch.set_num_threads(1)
    begin = time.perf_counter()
    stream = StreamingLeRobotDataset(
        "bench/remote",
        root=request["root"],
        return_uint8=True,
        cache_dir=request["cache_dir"],
        **request["options"],
    )
    _report({"cuts": count_cuts(stream.plan(0)), "lanes": stream.lanes})
    loader = StreamingDataLoader(stream, request["batch_size"])
    for _ in range(_EPOCHS):
        _report(_epoch(loader, begin, request["samples_per_s"]))
        begin = time.perf_counter()
    loader.close()


def _epoch(loader: StreamingDataLoader, begin: float, samples_per_s: float) -> dict[str, Any]:
    """Consume an epoch as training does, at a pace if one is given, and return its figures.

    Rate and wait are those from the first batch on.
    """
    batches = iter(loader)
    size = len(next(batches)["index"])
    started = time.perf_counter()
    first_wait_s = loader.stats()["epoch_dataloading_s"]
    samples = 0
    for batch in batches:
        samples += len(batch["index"])
        if samples_per_s:
            time.sleep(size / samples_per_s)
    seconds = time.perf_counter() - started
    return {
        "first_batch_s": started - begin,
        "samples_per_s": samples / seconds,
        "wait_share": (loader.stats()["epoch_dataloading_s"] - first_wait_s) / seconds,
        "stats": loader.stats(),
    }


def _report(figures: dict[str, Any]) -> None:
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
