# SPDX-License-Identifier: Apache-2.0
"""Print how long FFmpeg takes to convert one frame to RGB, called directly and through PyAV."""

from __future__ import annotations

import timeit

import av
import numpy as np

from robostream.decode.ffmpeg import Ffmpeg, is_proven, load_ffmpeg
from robostream.decode.frames import FrameReader
from robostream.decode.render import Renderer

SIZES = ((256, 256), (640, 480))
CALLS, REPEATS = 200, 7


def main() -> None:
    ffmpeg = load_ffmpeg()
    print(f"PyAV {av.__version__}, FFmpeg {av.ffmpeg_version_info}")
    for width, height in SIZES:
        in_use = ffmpeg is not None and is_proven(ffmpeg, "yuv420p", width, (2, 1))
        direct = f"{draw_us(ffmpeg, width, height):.0f} us" if in_use else "not in use"
        through = draw_us(None, width, height)
        print(f"  {width}x{height}: direct {direct}, through PyAV {through:.0f} us")


def draw_us(ffmpeg: Ffmpeg | None, width: int, height: int) -> float:
    """Return the microseconds that a frame takes: the best of several tries."""
    frame = av.VideoFrame(width, height, "yuv420p")
    frame.colorspace, frame.color_range = 2, 1
    noise = np.random.default_rng(0)
    for plane in frame.planes:
        plane.update(noise.bytes(plane.buffer_size))
    renderer, decoded = Renderer(ffmpeg), FrameReader().read(frame, "")
    out = np.zeros((3, height, width), np.uint8)
    tries = timeit.repeat(
        lambda: renderer.draw(decoded, out, file=""), number=CALLS, repeat=REPEATS
    )
    return min(tries) / CALLS * 1e6


if __name__ == "__main__":
    main()
