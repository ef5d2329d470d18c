# SPDX-License-Identifier: Apache-2.0
"""The process that `robostream bench rows` starts: it reads a dataset and says how fast it was."""

from __future__ import annotations

import json
import sys
import time

from robostream.loader import StreamingDataLoader, StreamingLeRobotDataset


def measure_epochs(root: str, epochs: int) -> list[float]:
    """Return the samples per second of each epoch, the first with the start of the workers."""
    stream = StreamingLeRobotDataset("bench/rows", root=root, rank=0, world_size=1)
    loader = StreamingDataLoader(stream, batch_size=64)
    rates = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        started_s = time.perf_counter()
        for _ in loader:
            pass
        rates.append(stream.num_frames / (time.perf_counter() - started_s))
    loader.close()
    return rates


if __name__ == "__main__":
    print(json.dumps(measure_epochs(sys.argv[1], int(sys.argv[2]))))
