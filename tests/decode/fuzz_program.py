# SPDX-License-Identifier: Apache-2.0
"""Damages a video in many ways and reads it; run as a process, so that a crash is seen as one.

Prints one JSON line per damaged copy: what was done and how many frames were right, wrong, refused.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from robostream.decode import FrameEngine, build_index
from robostream.errors import VideoFileError
from robostream.storage import LocalSource
from tests.decode.conftest import local_engine
from tests.decode.videos import reference


def main(path: Path, folder: Path, copies: int) -> None:
    """Damage and read `copies` copies."""
    content = path.read_bytes()
    pictures = reference(path)[1]
    index = build_index(LocalSource(path))
    first, last = int(index.byte_offsets.min()), int((index.byte_offsets + index.sizes).max())
    rng = np.random.default_rng(0)
    for number in range(copies):
        damaged = bytearray(content)
        kind = ("flip pictures", "flip heads", "flip index", "zero", "cut")[number % 5]
        at = int(rng.integers(first, last))
        if kind == "flip heads":
            at = int(rng.choice(index.byte_offsets)) + int(rng.integers(5))
        if kind in ("flip pictures", "flip heads"):
            damaged[at] ^= 1 << int(rng.integers(8))
        elif kind == "flip index":
            places = [p for p in range(len(content)) if not first <= p < last]
            damaged[int(rng.choice(places))] ^= 1 << int(rng.integers(8))
        elif kind == "zero":
            damaged[at : at + 200] = bytes(len(damaged[at : at + 200]))
        else:
            del damaged[int(rng.integers(len(content))) :]
        copy = folder / f"{number}.mp4"
        copy.write_bytes(damaged)
        counts, touched = read_all(
            copy, path, pictures, at if kind in ("flip pictures", "flip heads", "zero") else None
        )
        print(json.dumps({"kind": kind, "counts": counts, "wrong_elsewhere": touched}), flush=True)
        copy.unlink()


def read_all(
    path: Path, whole: Path, pictures: list[np.ndarray], at: int | None
) -> tuple[Counter[str], int]:
    """Return how reading went, and how much went wrong that does not depend on byte `at` and on.

    After each frame one of the whole file is read, which must be right. The damaged file is read
    twice, by an engine that keeps nothing and by one that keeps what it can.
    """
    counts: Counter[str] = Counter()
    elsewhere = 0
    for budget in (0, 10**7):
        with local_engine(budget_bytes=budget) as engine:
            for frame, picture in enumerate(pictures):
                outcome = read_one(engine, path, frame, picture)
                counts[outcome] += 1
                if outcome == "wrong" and at is not None:
                    elsewhere += not depends_on(engine, str(path), frame, at)
                elsewhere += outcome == "blamed another"
                other = (frame * 7 + 3) % len(pictures)
                elsewhere += read_one(engine, whole, other, pictures[other]) != "right"
    return counts, elsewhere


def read_one(engine: FrameEngine, path: Path, frame: int, picture: np.ndarray) -> str:
    """Return whether a frame is right, wrong or refused, and if so, with the file's name."""
    out = np.zeros((1, *picture.shape), picture.dtype)
    try:
        engine.read(str(path), [frame], out)
    except (VideoFileError, IndexError) as error:
        return "refused" if str(path) in str(error) else "blamed another"
    return "right" if np.array_equal(out[0], picture) else "wrong"


def depends_on(engine: FrameEngine, file: str, frame: int, at: int) -> bool:
    """Return whether a frame's GOP, up to the frame, has bytes in [at, at + 200)."""
    index = engine.files.get(file).index
    start = int(index.starts[index.gops_of(np.array([frame]))[0]])
    stop = int(index.packets_of(np.array([frame]))[0]) + 1
    ends = index.byte_offsets[start:stop] + index.sizes[start:stop]
    return bool(np.any((ends > at) & (index.byte_offsets[start:stop] < at + 200)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
