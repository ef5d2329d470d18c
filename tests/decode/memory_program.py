# SPDX-License-Identifier: Apache-2.0
"""Reads videos for ten epochs and prints, as JSON, the resident memory after each."""

from __future__ import annotations

import json
import sys

import numpy as np

from robostream.bench.processes import resident_bytes
from tests.decode.conftest import local_engine

_EPOCHS = 10


def main(budget: int, order: str, files: list[str]) -> None:
    """Read every frame of every file once per epoch, at random or in order."""
    before = resident_bytes()
    resident = []
    with local_engine(budget_bytes=budget) as engine:
        frames = [(f, n) for f in files for n in range(engine.files.get(f).index.num_frames)]
        sizes = {f: engine.files.get(f).index.configs[0] for f in files}
        outs = {f: np.zeros((1, 3, size.height, size.width), np.uint8) for f, size in sizes.items()}
        for epoch in range(_EPOCHS):
            places = np.arange(len(frames))
            if order == "random":
                np.random.default_rng(epoch).shuffle(places)
            for at in places.tolist():
                file, number = frames[at]
                engine.read(file, [number], outs[file])
            resident.append(resident_bytes() - before)
    print(json.dumps(resident))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
