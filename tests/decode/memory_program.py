# SPDX-License-Identifier: Apache-2.0
"""Reads videos for ten epochs and prints, as JSON, the resident memory after each."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from robostream.decode import NEVER, FrameEngine
from robostream.fetch import LocalSource

_EPOCHS = 10


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


def main(files: list[str], budget: int, foresight: bool) -> None:
    """Read every frame of every file once per epoch, in random order."""
    before = resident_bytes()
    engine = local_engine()
    frames = [(f, n) for f in files for n in range(engine.index(f).num_frames)]
    config = engine.index(files[0]).configs[0]
    out = np.zeros((1, 3, config.height, config.width), np.uint8)
    when: dict[tuple[str, int], int] = {}

    def next_uses(file: str, numbers: np.ndarray, after: int) -> np.ndarray:
        positions = np.array([when[file, n] for n in numbers.tolist()])
        return np.where(positions > after, positions, NEVER)[:, None]

    uses = next_uses if foresight else None
    resident = []
    with FrameEngine(LocalSource, store_bytes=budget, next_uses=uses, reorder=0) as engine:
        for epoch in range(_EPOCHS):
            order = np.random.default_rng(epoch).permutation(len(frames)).tolist()
            for place, at in enumerate(order):
                when[frames[at]] = epoch * len(frames) + place
            for place, at in enumerate(order):
                file, number = frames[at]
                engine.read(file, [number], out, position=epoch * len(frames) + place)
            resident.append(resident_bytes() - before)
    print(json.dumps(resident))


if __name__ == "__main__":
    main(sys.argv[3:], int(sys.argv[1]), sys.argv[2] == "foresight")
