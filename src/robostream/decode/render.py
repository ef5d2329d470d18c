# SPDX-License-Identifier: Apache-2.0
"""Draws, packs and scales frames.

Colours are exactly those of FFmpeg's conversion to rgb24. For 8-bit 4:2:0, converting straight to
planes (gbrp) gives the same values, several times faster than rgb24 and a transpose, with two
exceptions found by comparing. If the width is no multiple of 16, FFmpeg before 9 leaves up to 8
columns at the right edge unwritten, so such frames are made wider first. If the height is odd, the
values are rounded differently, so such frames are converted to rgb24.

Brightness is scaled by FFmpeg's bilinear filter, which widens when a frame shrinks, as
`torch.nn.functional.interpolate(mode="bilinear", antialias=True)` does; rounded accurately, and the
same on every processor and with every PyAV. Each plane is scaled on its own, so colours need no
conversion and 4:2:0 stays 4:2:0, unless the new height is odd; then it is drawn as RGB first.
Depth takes the nearest value: averaging depth values would invent surfaces.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import Interpolation, VideoReformatter

from robostream.decode.ffmpeg import Ffmpeg, PlaneReader, is_proven
from robostream.decode.frames import (
    CPU,
    PLANAR_8BIT,
    DecodedFrame,
    FrameLayout,
    PackedFrame,
    frame_layout,
    frame_of_arrays,
    one_thread,
    plane_of,
    to_format,
    unpack,
)
from robostream.decode.yuv420 import label_place

# (height, width), as torch's functions take it.
Size = tuple[int, int]
Values = npt.NDArray[Any]

_GBRP_WIDTH_MULTIPLE = 16
_WHITE = np.float32(255)
# Flags PyAV has no names for before 18: round accurately, the same on every processor.
_ACCURATE_RND, _BITEXACT = 1 << 18, 1 << 19
FILTER = int(Interpolation.BILINEAR) | _ACCURATE_RND | _BITEXACT


class Renderer:
    """Draws, packs and scales frames. For one thread, because it reuses its scratch memory.

    Args:
        ffmpeg: If None, everything goes through PyAV and numpy; the images are the same.
        flags: Those of FFmpeg's scaler, to compare its filters.
    """

    def __init__(self, ffmpeg: Ffmpeg | None, flags: int = FILTER) -> None:
        self._readers = _Readers(ffmpeg)
        self._scaler = PlaneScaler(flags)
        self._reformatter = VideoReformatter()
        self._wide: dict[FrameLayout, _WideFrame] = {}
        self._colours: dict[FrameLayout, npt.NDArray[np.uint8]] = {}

    def draw(self, frame: DecodedFrame, out: Values, *, file: str) -> None:
        """Write a decoded frame into one slot of a batch, shaped (channels, height, width).

        A colour slot is uint8, or float32 in [0, 1]; a depth slot is uint16 codes.
        """
        _check_device(frame)
        frame.layout.check_slot(out.shape, out.dtype, file)
        self._draw(frame, out, file)

    def pack(self, frame: DecodedFrame, packed: PackedFrame) -> None:
        """Write a decoded frame into memory, its planes one after the other."""
        reader = self._readers[frame.layout]
        if reader is not None and frame.device == CPU:
            reader.pack(frame, packed)
            return
        _check_device(frame)
        for mine, plane in zip(unpack(packed).arrays(), frame.arrays(), strict=True):
            mine[:] = plane

    def pack_into(self, frame: DecodedFrame, out: Values) -> None:
        """Pack a decoded frame at the start of an array."""
        self.pack(frame, PackedFrame(out[: frame.layout.nbytes], out.ctypes.data, frame.layout))

    def write_yuv(self, content: Values, out: Values, *, label: int) -> None:
        """Write a packed frame and its label into a batch of YUV frames."""
        out[: len(content)] = content
        self.write_label(out, label)

    def write_label(self, out: Values, label: int) -> None:
        """Write the label of a packed YUV 4:2:0 frame."""
        label_place(out)[:] = label

    def draw_packed(self, packed: Sequence[PackedFrame], out: Values, *, file: str) -> None:
        """Write packed frames into a batch, (frames, channels, height, width)."""
        layout = packed[0].layout
        if len(packed) > 1 and len({frame.layout for frame in packed}) > 1:
            for place, frame in enumerate(packed):
                self.draw_packed([frame], out[place : place + 1], file=file)
            return
        layout.check_slot(out.shape[1:], out.dtype, file)
        reader = self._readers[layout]
        if reader is not None and out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write_packed(packed, out)
            return
        for frame, slot in zip(packed, out, strict=True):
            self._draw(unpack(frame), slot, file)

    def scale(self, frame: DecodedFrame, size: Size, *, file: str) -> DecodedFrame:
        """Return a frame at a size; the same frame if it has that size."""
        old = frame.layout
        if size == (old.height, old.width):
            return frame
        if old.kind in PLANAR_8BIT and size[0] % 2:
            colours = np.empty(old.shape, np.uint8)
            self.draw(frame, colours, file=file)
            old = frame_layout("rgb", old.width, old.height, 0, 0)
            frame = frame_of_arrays(old, colours)
        new = frame_layout(old.kind, size[1], size[0], old.colorspace, old.color_range)
        if new.kind == "depth":
            return frame_of_arrays(new, [_nearest(codes, size) for codes in frame.arrays()])
        planes = (
            plane_of(self._scaler.scale(plane, (height, width)))
            for plane, (width, height) in zip(frame.arrays(), new.plane_sizes, strict=True)
        )
        return DecodedFrame(new, tuple(planes))

    def _draw(self, frame: DecodedFrame, out: Values, file: str) -> None:
        """Draw a frame of any layout: the one place that knows all of them."""
        if frame.layout.kind == "depth":
            (out[0],) = frame.arrays()
        elif frame.layout.kind in PLANAR_8BIT:
            self._draw_420(frame, out, file)
        else:
            _write_planes(frame, out)

    def _draw_420(self, frame: DecodedFrame, out: Values, file: str) -> None:
        layout = frame.layout
        reader = self._readers[layout]
        if reader is None:
            _write_planes(self._through_pyav(frame, file), out)
        elif out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write(frame, out)
        else:
            if layout not in self._colours:
                self._colours[layout] = np.empty(out.shape, np.uint8)
            colours = self._colours[layout]
            reader.write(frame, colours)
            _write_colours(colours, out)

    def _through_pyav(self, frame: DecodedFrame, file: str) -> DecodedFrame:
        """Return a 4:2:0 frame as RGB."""
        layout = frame.layout
        if layout not in self._wide:
            self._wide[layout] = _WideFrame(layout)
        wide = self._wide[layout].fill(frame)
        green, blue, red = to_format(self._reformatter, wide, "gbrp", file).planes
        colours = frame_layout("rgb", layout.width, layout.height, 0, 0)
        return DecodedFrame(colours, tuple(map(plane_of, (red, green, blue))))


class _Readers(dict[FrameLayout, PlaneReader | None]):
    """FFmpeg's readers by layout; None where PyAV draws. A missing one is opened."""

    def __init__(self, ffmpeg: Ffmpeg | None) -> None:
        super().__init__()
        self._ffmpeg = ffmpeg

    def __missing__(self, layout: FrameLayout) -> PlaneReader | None:
        reader = None
        if (
            self._ffmpeg is not None
            and layout.kind in PLANAR_8BIT
            and layout.width % _GBRP_WIDTH_MULTIPLE == 0
        ):
            size, colours = (layout.width, layout.height), (layout.colorspace, layout.color_range)
            if is_proven(self._ffmpeg, layout.kind, layout.width, colours):
                reader = PlaneReader(self._ffmpeg, layout.kind, size, colours)
        self[layout] = reader
        return reader


class _WideFrame:
    """A frame wide enough for FFmpeg's fast conversion; 4:2:0 frames are copied into it."""

    def __init__(self, layout: FrameLayout) -> None:
        width = -(-layout.width // _GBRP_WIDTH_MULTIPLE) * _GBRP_WIDTH_MULTIPLE
        self._frame = av.VideoFrame(width, layout.height, layout.kind)
        self._frame.colorspace = layout.colorspace
        self._frame.color_range = layout.color_range
        self._planes = DecodedFrame(layout, tuple(map(plane_of, self._frame.planes))).arrays()

    def fill(self, frame: DecodedFrame) -> av.VideoFrame:
        """Return the wide frame with `frame` in its left part."""
        for mine, plane in zip(self._planes, frame.arrays(), strict=True):
            mine[:] = plane
        return self._frame


def _write_planes(frame: DecodedFrame, out: Values) -> None:
    for plane, channel in zip(frame.arrays(), out, strict=True):
        _write_colours(plane, channel)


def _write_colours(colours: npt.NDArray[np.uint8], out: Values) -> None:
    out[:] = colours
    if out.dtype == np.float32:
        # A true division: multiplying by 1/255 differs in the last bit.
        np.divide(out, _WHITE, out=out)


def _check_device(frame: DecodedFrame) -> None:
    if frame.device != CPU:
        raise ValueError(f"frames are drawn on the CPU; this one lies on {frame.device}")


class PlaneScaler:
    """Scales planes of brightness. For one thread: FFmpeg's tables are cached for each size."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._reformatters: dict[tuple[tuple[int, ...], Size], VideoReformatter] = {}

    def scale(self, plane: npt.NDArray[np.uint8], size: Size) -> VideoPlane:
        """Return a plane (rows of contiguous values) at a size, in FFmpeg's memory."""
        key = plane.shape, size
        if key not in self._reformatters:
            self._reformatters[key] = VideoReformatter()
        frame = av.VideoFrame.from_numpy_buffer(plane, format="gray")
        scaled = self._reformatters[key].reformat(
            frame, width=size[1], height=size[0], interpolation=self._flags, **one_thread()
        )
        return scaled.planes[0]


def scale_values(values: Values, size: Size) -> Values:
    """Return (channels, height, width) at a size: uint8 is brightness, other types are measured."""
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
