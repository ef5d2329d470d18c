# SPDX-License-Identifier: Apache-2.0
"""Reels of files that are there, and of none."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from robostream.batches.clip import Clip, Clock
from robostream.decode import CodecConfig, FrameIndex, VideoFile, build_index
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
    """Return a clip as a file held open."""
    source = LocalSource(clip.path)
    return VideoFile(clip.file, source, build_index(source))


def clip_of(
    steps: list[int],
    *,
    clock: Clock | None = None,
    file: VideoFile | None = None,
    camera: int = 0,
    episode: int = 0,
    offsets: Ints = NOW,
) -> Clip:
    """Return a reel of an episode whose frame n is delivered at steps[n], for its whole file."""
    count = len(steps)
    return Clip(
        clock or Clock(),
        camera,
        episode,
        file or no_file(count),
        np.arange(count),
        samples=np.arange(count),
        steps=np.array(steps),
        offsets=offsets,
    )
