# SPDX-License-Identifier: Apache-2.0
"""Pictures at another size.

Brightness is scaled by FFmpeg's bilinear filter, which is widened when a picture shrinks, as
`torch.nn.functional.interpolate(mode="bilinear", antialias=True)` does it; rounded accurately, and
the same on every processor and with every PyAV. Each plane is scaled by itself, so colours need no
conversion and 4:2:0 stays 4:2:0. Whatever else a decoder gives is scaled as the finished picture.
Measured values (depth) are never mixed: between two distances lies nothing that was there. Each
takes the nearest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import Interpolation, VideoReformatter

from robostream.decode.picture.conversion import one_thread
from robostream.decode.picture.layout import PLANAR_8BIT, layout_of
from robostream.decode.picture.render import Renderer, plane_rows

# (height, width), as torch's functions take it.
Size = tuple[int, int]
Plane = npt.NDArray[Any]

# Flags PyAV has no names for before 18: round accurately, alike on every processor.
_ACCURATE_RND, _BITEXACT = 1 << 18, 1 << 19
FILTER = int(Interpolation.BILINEAR) | _ACCURATE_RND | _BITEXACT
_GBRP = (1, 2, 0)


class PlaneScaler:
    """Scales planes of brightness. For one thread: FFmpeg's tables are kept for each size."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._reformatters: dict[tuple[tuple[int, ...], tuple[int, ...]], VideoReformatter] = {}

    def scale(self, plane: Plane, out: Plane) -> None:
        """Write a plane of uint8 into one of another size."""
        if plane.shape == out.shape:
            out[:] = plane
            return
        key = plane.shape, out.shape
        if key not in self._reformatters:
            self._reformatters[key] = VideoReformatter()
        height, width = out.shape
        scaled = self._reformatters[key].reformat(
            av.VideoFrame.from_numpy_buffer(plane, format="gray"),
            width=width,
            height=height,
            interpolation=self._flags,
            **one_thread(),
        )
        out[:] = plane_rows(scaled.planes[0], np.uint8)[:, :width]


class FrameScaler:
    """Scales decoded frames. For one thread.

    `flags` are those of FFmpeg's scaler, to compare its filters.
    """

    def __init__(self, renderer: Renderer, flags: int = FILTER) -> None:
        self._renderer = renderer
        self._planes = PlaneScaler(flags)

    def scale(self, frame: av.VideoFrame, size: Size | None, *, file: str) -> av.VideoFrame:
        """Return a frame at a size; itself if it has it, or if the size is None."""
        if size is None or size == (frame.height, frame.width):
            return frame
        kind = layout_of(frame).kind
        if kind == "depth":
            return _nearest_frame(frame, size)
        name = kind if kind in PLANAR_8BIT else "gbrp"
        scaled = av.VideoFrame(size[1], size[0], name)
        for plane, into in zip(self._source(frame, file), scaled.planes, strict=True):
            self._planes.scale(plane, plane_rows(into, np.uint8)[:, : into.width])
        if name != "gbrp":
            scaled.colorspace, scaled.color_range = frame.colorspace, frame.color_range
        return scaled

    def _source(self, frame: av.VideoFrame, file: str) -> Sequence[Plane]:
        """Return the planes to scale: those of 8-bit 4:2:0, else of the finished picture."""
        layout = layout_of(frame)
        if layout.kind in PLANAR_8BIT:
            return [plane_rows(plane, np.uint8)[:, : plane.width] for plane in frame.planes]
        picture = np.empty(layout.shape, np.uint8)
        self._renderer.draw(frame, layout, picture, file=file)
        return [picture[channel] for channel in _GBRP]


def scale_picture(picture: Plane, size: Size) -> Plane:
    """Return a picture (channels, height, width) at a size: uint8 is brightness, else measured."""
    if picture.shape[1:] == size:
        return picture
    if picture.dtype != np.uint8:
        return _nearest(picture, size)
    scaled = np.empty((len(picture), *size), np.uint8)
    scaler = PlaneScaler(FILTER)
    for plane, out in zip(picture, scaled, strict=True):
        scaler.scale(plane, out)
    return scaled


def _nearest(values: Plane, size: Size) -> Plane:
    """Return the values nearest to the middle of each place."""
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for new, old in zip(size, values.shape[-2:], strict=True)
    )
    return values[..., rows[:, None], columns]


def _nearest_frame(frame: av.VideoFrame, size: Size) -> av.VideoFrame:
    scaled = av.VideoFrame(size[1], size[0], frame.format.name)
    codes = plane_rows(frame.planes[0], np.uint16)[:, : frame.width]
    plane_rows(scaled.planes[0], np.uint16)[:, : size[1]] = _nearest(codes, size)
    return scaled
