# SPDX-License-Identifier: Apache-2.0
"""Whether FFmpeg, called without PyAV in between, draws the very pictures that PyAV does.

What a call gives depends on the FFmpeg that was loaded, on how it was built and on the processor.
So no version is trusted: noise is drawn both ways first, and where a single value differs PyAV
goes on drawing.

FFmpeg converts line by line, and each pixel from its own values; which of its functions does it,
and how a line ends, hangs on the format, the width and whether the height is even. Kept and drawn
like this are even heights only. So noise as wide as the pictures stands for those of any height.
"""

from __future__ import annotations

import logging
import random
from functools import lru_cache

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from robostream.decode.picture.arena import allocate
from robostream.decode.picture.conversion import convert
from robostream.decode.picture.from_pyav import FrameReader
from robostream.decode.picture.native import Ffmpeg, PlaneReader

logger = logging.getLogger(__name__)

# Enough for a rule that rounds otherwise to show, and still done in about a millisecond.
_PIXELS = 1 << 16


@lru_cache(maxsize=1024)
def is_proven(ffmpeg: Ffmpeg, name: str, width: int, colours: tuple[int, int]) -> bool:
    """Return whether frames so wide, of this format and colour coding, are drawn as PyAV does."""
    try:
        is_same = _draws_the_same(ffmpeg, name, width, colours)
    except (av.FFmpegError, RuntimeError, MemoryError):
        is_same = False
    if not is_same:
        logger.info(
            "FFmpeg %s, called directly, does not draw %s of width %d, colour space %d, range %d "
            "as PyAV does; PyAV draws them, which is slower.",
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
