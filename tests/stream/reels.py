# SPDX-License-Identifier: Apache-2.0
"""Reels of files that are there, and of none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from robostream.decode import CodecConfig, FrameIndex, VideoFile, build_index
from robostream.plan import Ints
from robostream.storage import LocalSource
from robostream.stream.reel import Clock, Reel
from tests.decode.conftest import Clip

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
        positions=every,
        sizes=np.ones_like(every),
        starts=starts,
        start_frames=starts,
        configs=(CodecConfig("none", b"", 8, 8),),
        start_configs=np.zeros_like(starts),
    )
    return VideoFile("none.mp4", LocalSource(__file__), index)


def open_file(clip: Clip) -> VideoFile:
    """Return a clip as a file held open."""
    source = LocalSource(clip.path)
    return VideoFile(clip.file, source, build_index(source))


def reel_of(
    steps: list[int],
    *,
    clock: Clock | None = None,
    file: VideoFile | None = None,
    camera: int = 0,
    episode: int = 0,
    offsets: Ints = NOW,
) -> Reel:
    """Return a reel of an episode whose frame n is delivered at steps[n], for its whole file."""
    count = len(steps)
    return Reel(
        clock or Clock(),
        camera,
        episode,
        file or no_file(count),
        np.arange(count),
        samples=np.arange(count),
        steps=np.array(steps),
        offsets=offsets,
    )
