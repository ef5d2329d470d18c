# SPDX-License-Identifier: Apache-2.0
"""The datasets of the suite: each codec, size and layout that loaders behave differently on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from robostream.bench.datasets import bench_dataset, one_row_group
from robostream.tools import SynthSpec

# There are many more episodes than the pool holds, so that the pool matters. Few of them differ,
# which makes the dataset sooner and does not change what decoding costs. At 5 frames/s, windows of
# 7 s fit into most of them.
_AV1 = SynthSpec(episodes=256, distinct=32, min_frames=24, max_frames=40, fps=5, video_file_mb=0.25)


@dataclass(frozen=True, slots=True)
class Shape:
    """One dataset: its name in tables, what it is made of, and what is changed afterwards."""

    title: str
    spec: SynthSpec
    change: Callable[[Path], Path] | None = None

    def open(self) -> Path:
        """Return its folder, made now if it is not there yet."""
        root = bench_dataset("suite", self.spec)
        return root if self.change is None else self.change(root)


SHAPES = {
    "av1": Shape("3 cameras 256x256, AV1, key frame every 2", _AV1),
    "av1-640": Shape(
        "2 cameras 640x480, AV1, key frame every 2",
        replace(_AV1, episodes=128, distinct=16, cameras=2, width=640, height=480),
    ),
    "h264": Shape(
        "3 cameras 256x256, H.264, key frame every 250",
        replace(_AV1, codec="h264", gop=250, crf=28),
    ),
    "images": Shape(
        "1 camera 256x256, PNG in Parquet",
        replace(_AV1, episodes=96, distinct=24, cameras=1, image_cameras=1),
    ),
    "av1-one-group": Shape("as the first, one row group per Parquet file", _AV1, one_row_group),
}
