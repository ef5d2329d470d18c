# SPDX-License-Identifier: Apache-2.0
"""Small videos of every kind the engine must decode, made with real encoders."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from tests.decode import boxes

QUIET_X265 = "log-level=none:pools=1:frame-threads=1"
FPS = 30


def pictures(count: int, *, width: int = 96, height: int = 64, seed: int = 0) -> Iterator[Any]:
    """Yield RGB pictures of shapes that move over a texture, no two alike."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    base = 110 + 50 * np.sin(x[..., None] / (7 + np.arange(3)) + y[..., None] / 9)
    base = base + rng.normal(0, 6, (height, width, 3))
    for t in range(count):
        picture = base.copy()
        for k in range(3):
            left = int((width - 16) * (0.5 + 0.5 * np.sin(0.21 * t + 2 * k + seed)))
            top = int((height - 16) * (0.5 + 0.5 * np.cos(0.17 * t + k)))
            picture[top : top + 16, left : left + 16] = (80 * k, 200 - 60 * k, (9 * t) % 256)
        yield np.clip(picture, 0, 255).astype(np.uint8)


def encode(
    path: Path,
    codec: str,
    options: dict[str, str],
    *,
    count: int = 48,
    size: tuple[int, int] = (96, 64),
    pix_fmt: str = "yuv420p",
    pts: Sequence[int] | None = None,
    movflags: str = "",
    seed: int = 0,
) -> Path:
    """Encode a video; `pts` are ticks of 1/600 s and default to a constant rate."""
    width, height = size
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = container.add_stream(codec, rate=FPS, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pix_fmt
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = Fraction(1, 600)
        for t, picture in enumerate(pictures(count, width=width, height=height, seed=seed)):
            frame = _frame(picture, pix_fmt)
            frame.pts = 600 // FPS * t if pts is None else pts[t]
            frame.time_base = Fraction(1, 600)
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
    return path


def _frame(picture: npt.NDArray[np.uint8], pix_fmt: str) -> av.VideoFrame:
    if pix_fmt.startswith("gray12"):
        codes = picture[..., 0].astype(np.uint16) * 16 + picture[..., 1] % 16
        return av.VideoFrame.from_ndarray(codes, format=pix_fmt)
    return av.VideoFrame.from_ndarray(picture, format="rgb24")


def reference(path: Path) -> tuple[list[float], list[npt.NDArray[Any]]]:
    """Return times and pictures (CHW) of a file, decoded from first to last by its container."""
    times, decoded = [], []
    convert = VideoReformatter()
    with av.open(str(path)) as container:
        container.streams.video[0].thread_count = 1
        for frame in container.decode(video=0):
            times.append(float(frame.pts * frame.time_base))
            if frame.format.name.startswith("gray12"):
                decoded.append(frame.to_ndarray()[None])
                continue
            rgb = convert.reformat(frame, format="rgb24", threads=1).to_ndarray()
            decoded.append(rgb.transpose(2, 0, 1))
    return times, decoded
