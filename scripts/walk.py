# SPDX-License-Identifier: Apache-2.0
"""Print the route of one streamed sample: the files and functions it passes, and its calls.

    python scripts/walk.py [--list]

An in-process loader builds batches of three cameras from a synthetic dataset. The first batches are
not traced, so the figures describe the steady state. Calls are per sample. A change of file is a
call from one file of robostream to another. `PYTHONPATH` may name the sources of another commit.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import robostream
from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.tools import SynthSpec, make_dataset

HOME = str(Path(robostream.__file__).parent)
BATCH_SIZE = 8
WARM_BATCHES, TRACED_BATCHES = 30, 40


class Route:
    """Counts the calls inside robostream, and those from one of its files to another."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.changes = 0

    def follow(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call. For `sys.setprofile`."""
        name = frame.f_code.co_filename
        if event != "call" or not name.startswith(HOME):
            return
        self.calls[name[len(HOME) + 1 :], frame.f_code.co_qualname] += 1
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(HOME):
            caller = caller.f_back
        if caller is not None and caller.f_code.co_filename != name:
            self.changes += 1


def main() -> None:
    """Make a dataset, stream it, and print the route."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print each function and its calls")
    listed = parser.parse_args().list
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "walk")
        make_dataset(
            root, SynthSpec(episodes=60, min_frames=30, max_frames=40, distinct=12, cameras=3)
        )
        route = trace(root)
    samples = TRACED_BATCHES * BATCH_SIZE
    files = {file for file, _ in route.calls}
    print(f"files that a sample passes      {len(files)}")
    print(f"functions that a sample passes  {len(route.calls)}")
    print(f"calls a sample                  {route.calls.total() / samples:.0f}")
    print(f"changes of file a sample        {route.changes / samples:.0f}")
    if listed:
        for (file, function), count in sorted(route.calls.items()):
            print(f"{count / samples:8.2f}  {file}  {function}")


def trace(root: Path) -> Route:
    """Return the route of the samples after the first batches."""
    stream = StreamingLeRobotDataset("walk", root=root, return_uint8=True)
    loader = StreamingDataLoader(stream, BATCH_SIZE, num_workers=0)
    batches, route = iter(loader), Route()
    for _ in range(WARM_BATCHES):
        next(batches)
    threading.setprofile(route.follow)
    sys.setprofile(route.follow)
    for _ in range(TRACED_BATCHES):
        next(batches)
    sys.setprofile(None)
    threading.setprofile(None)
    return route


if __name__ == "__main__":
    main()
