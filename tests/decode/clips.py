# SPDX-License-Identifier: Apache-2.0
"""Clips of files that exist, and of none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from robostream.decode import (
    Clip,
    ClipUses,
    Clock,
    CodecConfig,
    Deliveries,
    FrameIndex,
    VideoFile,
    build_index,
)
from robostream.plan import Ints
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo

NOW = np.zeros(1, np.int64)


def no_file(num_frames: int = 1, *, gop: int = 2) -> VideoFile:
    """Return a file that cannot be read, of frames with a start every `gop`."""
    every, starts = np.arange(num_frames), np.arange(0, num_frames, gop)
    index = FrameIndex(
        file="none.mp4",
        file_bytes=0,
        time_base=Fraction(1, 30),
        pts=every,
        packets=None,
        frames=None,
        byte_offsets=every,
        sizes=np.ones_like(every),
        starts=starts,
        start_frames=starts,
        configs=(CodecConfig("none", b"", 8, 8),),
        start_configs=np.zeros_like(starts),
    )
    return VideoFile("none.mp4", LocalSource(__file__), index)


def open_file(clip: SampleVideo) -> VideoFile:
    """Return a video as an open file."""
    source = LocalSource(clip.path)
    return VideoFile(clip.file, source, build_index(source))


def uses_of(
    steps: list[int],
    *,
    clock: Clock | None = None,
    file: VideoFile | None = None,
    camera: int = 0,
    episode: int = 0,
    offsets: Ints = NOW,
) -> ClipUses:
    """Return the uses of an episode whose frame n is delivered at steps[n], for its whole file."""
    count = len(steps)
    file = file or no_file(count)
    clip = Clip(file, np.arange(count), camera, episode, has_long_gops=file.index.has_long_gops)
    return ClipUses(clip, clock or Clock(), Deliveries(np.arange(count), np.array(steps)), offsets)
