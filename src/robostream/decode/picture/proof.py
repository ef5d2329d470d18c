# SPDX-License-Identifier: Apache-2.0
"""Checks that FFmpeg, called directly, gives the same pictures as PyAV.

What FFmpeg gives depends on its version, on how it was built and on the processor. So before it is
used for a format, a picture of noise is drawn both ways. If a single value differs, pictures of
that format are drawn through PyAV.

One picture is enough for all heights: FFmpeg converts line by line, and each pixel from its own
values. Which of its functions does so, and how it treats the end of a line, depends on the format,
on the width and on whether the height is even; odd heights are never drawn in this way.
"""

from __future__ import annotations

import logging
import random
from functools import lru_cache

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from robostream.decode.picture.buffer_pool import allocate
from robostream.decode.picture.conversion import convert
from robostream.decode.picture.from_pyav import FrameReader
from robostream.decode.picture.native import Ffmpeg, PlaneReader

logger = logging.getLogger(__name__)

# So many pixels show any difference in rounding, and are drawn in about a millisecond.
_PIXELS = 1 << 16


@lru_cache(maxsize=1024)
def is_proven(ffmpeg: Ffmpeg, name: str, width: int, colours: tuple[int, int]) -> bool:
    """Return whether FFmpeg gives PyAV's pictures for this format, width and colour coding."""
    try:
        is_same = _draws_the_same(ffmpeg, name, width, colours)
    except (av.FFmpegError, RuntimeError, MemoryError):
        is_same = False
    if not is_same:
        logger.info(
            "FFmpeg %s, called directly, gives other pictures than PyAV for %s of width %d, colour "
            "space %d, range %d; they are drawn through PyAV, which is slower.",
            av.ffmpeg_version_info,
            name,
            width,
            *colours,
        )
    return is_same


def _draws_the_same(ffmpeg: Ffmpeg, name: str, width: int, colours: tuple[int, int]) -> bool:
    height = 2 * max(1, _PIXELS // (2 * width))
    frame = av.VideoFrame(width, height, name)
    frame.colorspace, frame.color_range = colours
    noise = random.Random(0)
    for plane in frame.planes:
        plane.update(noise.randbytes(plane.buffer_size))
    wanted = convert(VideoReformatter(), frame, "rgb24").to_ndarray().transpose(2, 0, 1)
    nbytes = width * height * 3 // 2
    slot = allocate(nbytes)
    reader = PlaneReader(ffmpeg, name, (width, height), colours)
    at_once, kept = np.zeros((2, 3, height, width), np.uint8)
    picture = FrameReader().read(frame, file="noise")
    reader.write(picture, at_once)
    reader.pack(picture, slot)
    reader.write_packed([slot], kept)
    return np.array_equal(at_once, wanted) and np.array_equal(kept, wanted)
