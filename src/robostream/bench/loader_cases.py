# SPDX-License-Identifier: Apache-2.0
"""What `robostream bench loader` measures: datasets, samples, and the goals we set ourselves."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from robostream.tools import SynthSpec

# Many small files, so that the floor's processes have equally much to do. Episodes are repeated, so
# that they are made quickly.
_SHORT = SynthSpec(episodes=320, min_frames=60, max_frames=100, distinct=32, video_file_mb=0.5)
_LONG_GOP = dataclasses.replace(_SHORT, codec="h264", gop=250, crf=23)
_LARGE = dataclasses.replace(
    _SHORT, episodes=120, cameras=2, width=640, height=480, video_file_mb=2
)
_LONG = SynthSpec(episodes=96, distinct=16, video_file_mb=0.5)
# The commonest dataset of all: fewer episodes than the pool mixes, and 34 GB once decoded.
_COMMON = SynthSpec(
    episodes=50,
    min_frames=500,
    max_frames=500,
    cameras=3,
    width=640,
    height=480,
    distinct=4,
    video_file_mb=2,
)


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the benchmark.

    Attributes:
        name: Its name.
        data: The dataset.
        spec: What the dataset is made of.
        goal: The images/s over the floor's that we want; None where nothing is promised.
        batch_size: Samples per batch.
        spacing_s: Seconds between the 8 pictures of each camera; None for one picture.
        options: Settings of the stream beyond the dataset and uint8; the fewer the better.
        is_random: Whether the floor decodes at random too, because nothing else is possible.
    """

    name: str
    data: str
    spec: SynthSpec
    goal: float | None
    batch_size: int = 32
    spacing_s: float | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)
    is_random: bool = False

    @property
    def offsets(self) -> list[int]:
        """The pictures of a sample, in frames relative to its own."""
        if self.spacing_s is None:
            return [0]
        return [-round(self.spacing_s * self.spec.fps) * step for step in range(7, -1, -1)]


_SMALL_POOL = {"episode_pool_size": 8, "lanes": 8}

CASES = (
    Case("single", "av1", _SHORT, 0.85),
    Case("sarm", "av1", _SHORT, 4.0, batch_size=16, spacing_s=0.4),
    Case("single float32", "av1", _SHORT, None, options={"return_uint8": False}),
    Case("single g=250", "h264", _LONG_GOP, 0.75),
    Case("single 640x480 x 2", "av1-640", _LARGE, 0.85, options={"frame_cache_bytes": "4GiB"}),
    Case("single 640x480 x 3, 50 episodes", "av1-common", _COMMON, 0.9, is_random=True),
    Case("single, 1.5 pools", "av1-long", _LONG, 0.65),
    Case("sarm, 1.5 pools", "av1-long", _LONG, 2.5, batch_size=16, spacing_s=1.0),
    # All decoded pictures of this dataset may fit into memory. With a limit, the cases show what a
    # larger dataset gets.
    Case("single, 2 GiB", "av1", _SHORT, 0.85, options={"frame_cache_bytes": "2GiB"}),
    Case(
        "sarm, 3 GiB",
        "av1",
        _SHORT,
        4.0,
        batch_size=16,
        spacing_s=0.4,
        options={"frame_cache_bytes": "3GiB"},
    ),
    Case("single, pool 8", "av1", _SHORT, None, options=_SMALL_POOL),
    Case("sarm, pool 8", "av1", _SHORT, None, batch_size=16, spacing_s=0.4, options=_SMALL_POOL),
)


def small(case: Case) -> Case:
    """Return a case with a sixth of the episodes, for a first look."""
    spec = dataclasses.replace(case.spec, episodes=max(8, case.spec.episodes // 6))
    return dataclasses.replace(case, spec=spec, data=f"{case.data}-small")
