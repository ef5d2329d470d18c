# SPDX-License-Identifier: Apache-2.0
"""The process `bench peers` starts for each measurement: one contestant, one task.

python -m robostream.bench.peers.one_run '{"task": "speed", "contestant": ..., "root": ..., ...}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch

from robostream.bench.peers.contestants import CONTESTANTS, Contestant, Request
from robostream.bench.peers.delivery import check_delivery
from robostream.errors import RobostreamError
from robostream.meta import LeRobotDatasetMetadata


def measure_speed(contestant: Contestant, request: Request, seconds: float) -> dict[str, float]:
    """Return the rates after the first batch, until the time is up or the epoch over."""
    cameras = len(LeRobotDatasetMetadata("bench/peers", root=request.root).camera_keys)
    began = time.perf_counter()
    samples = 0
    first = now = 0.0
    for batch in contestant.open(request):
        now = time.perf_counter()
        if not first:
            first = now
            continue
        samples += len(batch["index"])
        if now - first > seconds:
            break
    if not samples:
        raise RobostreamError("no batch came after the first one")
    rate = samples / (now - first)
    return {
        "samples_per_s": rate,
        "images_per_s": rate * cameras * len(request.offsets),
        "first_batch_s": first - began,
        "samples": samples,
    }


def main(asked: dict[str, Any]) -> None:
    """Do what is asked for and print the figures as JSON."""
    torch.set_num_threads(1)
    contestant = CONTESTANTS[asked["contestant"]]
    request = Request(asked["root"], asked["offsets"], asked["batch_size"], asked["workers"])
    if asked["task"] == "speed":
        found = measure_speed(contestant, request, asked["seconds"])
    else:
        found = check_delivery(contestant, request)
    print(json.dumps(found), flush=True)
    # Some loaders' workers take long to end. All figures are known by now, so nobody waits.
    os._exit(0)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
