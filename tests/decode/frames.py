# SPDX-License-Identifier: Apache-2.0
"""Frames of noise, and what PyAV makes of them."""

from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from robostream.decode import DecodedFrame
from robostream.decode.frames import FrameReader, convert


def noise(width: int, height: int, name: str, seed: int) -> av.VideoFrame:
    """Return a frame of random values, padding included."""
    frame = av.VideoFrame(width, height, name)
    rng = np.random.default_rng(seed)
    for plane in frame.planes:
        values = rng.integers(0, 256, plane.buffer_size).astype(np.uint8)
        if name.endswith("10le"):
            values[1::2] &= 3
        plane.update(values.tobytes())
    return frame


def picture_of(frame: av.VideoFrame) -> DecodedFrame:
    """Return what a backend makes of a frame."""
    return FrameReader().read(frame, "top.mp4")


def through_rgb24(frame: av.VideoFrame) -> npt.NDArray[np.uint8]:
    """Return the picture PyAV's conversion to packed RGB gives, as CHW."""
    return convert(VideoReformatter(), frame, "rgb24").to_ndarray().transpose(2, 0, 1)
