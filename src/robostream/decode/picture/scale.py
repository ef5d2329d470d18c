# SPDX-License-Identifier: Apache-2.0
"""Pictures at another size.

Brightness is scaled by FFmpeg's bilinear filter, which is widened when a picture shrinks, as
`torch.nn.functional.interpolate(mode="bilinear", antialias=True)` does it; rounded accurately, and
the same on every processor and with every PyAV. Each plane is scaled by itself, so colours need no
conversion and 4:2:0 stays 4:2:0, unless the new height is odd; then it is drawn as RGB first.
Measured values (depth) are never mixed: between two distances lies nothing that was there. Each
takes the nearest.
"""

from __future__ import annotations

from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import Interpolation, VideoReformatter

from robostream.decode.picture.conversion import one_thread
from robostream.decode.picture.decoded import DecodedFrame, picture_of_arrays
from robostream.decode.picture.from_pyav import plane_of
from robostream.decode.picture.layout import PLANAR_8BIT, kept_layout
from robostream.decode.picture.render import Renderer

# (height, width), as torch's functions take it.
Size = tuple[int, int]
Values = npt.NDArray[Any]

# Flags PyAV has no names for before 18: round accurately, alike on every processor.
_ACCURATE_RND, _BITEXACT = 1 << 18, 1 << 19
FILTER = int(Interpolation.BILINEAR) | _ACCURATE_RND | _BITEXACT


class PlaneScaler:
    """Scales planes of brightness. For one thread: FFmpeg's tables are kept for each size."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._reformatters: dict[tuple[tuple[int, ...], Size], VideoReformatter] = {}

    def scale(self, plane: npt.NDArray[np.uint8], size: Size) -> VideoPlane:
        """Return a plane (rows of contiguous values) at a size, in memory of FFmpeg's."""
        key = plane.shape, size
        if key not in self._reformatters:
            self._reformatters[key] = VideoReformatter()
        frame = av.VideoFrame.from_numpy_buffer(plane, format="gray")
        scaled = self._reformatters[key].reformat(
            frame, width=size[1], height=size[0], interpolation=self._flags, **one_thread()
        )
        return scaled.planes[0]


class FrameScaler:
    """Scales decoded pictures. For one thread.

    `flags` are those of FFmpeg's scaler, to compare its filters.
    """

    def __init__(self, renderer: Renderer, flags: int = FILTER) -> None:
        self._renderer = renderer
        self._planes = PlaneScaler(flags)

    def scale(self, picture: DecodedFrame, size: Size | None, *, file: str) -> DecodedFrame:
        """Return a picture at a size; itself if it has it, or if the size is None."""
        old = picture.layout
        if size is None or size == (old.height, old.width):
            return picture
        if old.kind in PLANAR_8BIT and size[0] % 2:
            picture = self._drawn(picture, file)
            old = picture.layout
        new = kept_layout(old.kind, size[1], size[0], old.colorspace, old.color_range)
        if new.kind == "depth":
            return picture_of_arrays(new, [_nearest(codes, size) for codes in picture.arrays()])
        planes = (
            plane_of(self._planes.scale(plane, (height, width)))
            for plane, (width, height) in zip(picture.arrays(), new.plane_sizes, strict=True)
        )
        return DecodedFrame(new, tuple(planes))

    def _drawn(self, picture: DecodedFrame, file: str) -> DecodedFrame:
        colours = np.empty(picture.layout.shape, np.uint8)
        self._renderer.draw(picture, colours, file=file)
        layout = kept_layout("rgb", picture.layout.width, picture.layout.height, 0, 0)
        return picture_of_arrays(layout, colours)


def scale_values(values: Values, size: Size) -> Values:
    """Return (channels, height, width) at a size: uint8 is brightness, all else is measured."""
    if values.shape[1:] == size:
        return values
    if values.dtype != np.uint8:
        return _nearest(values, size)
    scaler = PlaneScaler(FILTER)
    scaled = np.empty((len(values), *size), np.uint8)
    for channel, plane in zip(scaled, values, strict=True):
        rows = np.frombuffer(memoryview(scaler.scale(plane, size)), np.uint8)
        channel[:] = rows.reshape(size[0], -1)[:, : size[1]]
    return scaled


def _nearest(values: Values, size: Size) -> Values:
    """Return the values nearest to the middle of each place."""
    rows, columns = (
        (2 * np.arange(new) + 1) * old // (2 * new)
        for new, old in zip(size, values.shape[-2:], strict=True)
    )
    return values[..., rows[:, None], columns]
