# SPDX-License-Identifier: Apache-2.0
"""From decoded pictures to those of a batch, and to and from the bytes kept in between.

Colours are exactly those of FFmpeg's conversion to rgb24. For 8-bit 4:2:0, converting straight to
planes (gbrp) gives the same values, several times faster than rgb24 and a transpose. There are two
exceptions, found by comparing. If the width is no multiple of 16, FFmpeg before 9 leaves up to 8
columns at the right edge unwritten, so such frames are made wider first. If the height is odd, the
values are rounded in another way, so such frames are converted to rgb24.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from robostream.decode.picture.buffer_pool import SlotMemory
from robostream.decode.picture.decoded import CPU, DecodedFrame, kept_picture
from robostream.decode.picture.from_pyav import plane_of, to_format
from robostream.decode.picture.layout import PLANAR_8BIT, FrameLayout, kept_layout
from robostream.decode.picture.native import Ffmpeg, PlaneReader
from robostream.decode.picture.parcel import label_place
from robostream.decode.picture.proof import is_proven
from robostream.errors import VideoFileError

Bytes = npt.NDArray[np.uint8]
Picture = npt.NDArray[Any]

_GBRP_WIDTH_MULTIPLE = 16
_WHITE = np.float32(255)


class Renderer:
    """Draws decoded pictures into batches. For one thread, because it reuses its scratch memory.

    If `ffmpeg` is None, everything goes through PyAV and numpy; the pictures are the same.
    """

    def __init__(self, ffmpeg: Ffmpeg | None) -> None:
        self._ffmpeg = ffmpeg
        self._reformatter = VideoReformatter()
        self._readers: dict[FrameLayout, PlaneReader | None] = {}
        self._wide: dict[FrameLayout, _WideFrame] = {}
        self._colours: dict[FrameLayout, Bytes] = {}

    def draw(self, picture: DecodedFrame, out: Picture, *, file: str) -> None:
        """Write a decoded picture into one slot of a batch, shaped (channels, height, width).

        A colour slot is uint8, or float32 in [0, 1]; a depth slot is uint16 codes.
        """
        _check_device(picture)
        _check_slot(picture.layout, out, file)
        self._draw(picture, out, file)

    def pack(self, picture: DecodedFrame, slot: SlotMemory) -> None:
        """Write a decoded picture into the memory that keeps it."""
        _check_device(picture)
        reader = self._reader(picture.layout)
        if reader is not None:
            reader.pack(picture, slot)
            return
        kept = kept_picture(picture.layout, slot)
        for mine, plane in zip(kept.arrays(), picture.arrays(), strict=True):
            mine[:] = plane

    def pack_into(self, picture: DecodedFrame, out: Picture) -> None:
        """Write the planes of a decoded picture, as they are kept, to the begin of an array."""
        self.pack(picture, SlotMemory(out[: picture.layout.nbytes], out.ctypes.data))

    def write_yuv(self, content: Picture, out: Picture, *, label: int) -> None:
        """Write a kept picture into a parcel, and its label."""
        out[: len(content)] = content
        self.write_label(out, label)

    def write_label(self, out: Picture, label: int) -> None:
        """Put the label on a parcel."""
        label_place(out)[:] = label

    def draw_packed(
        self, slots: Sequence[SlotMemory], layout: FrameLayout, out: Picture, *, file: str
    ) -> None:
        """Write kept pictures into slots of a batch, shaped (pictures, channels, height, width)."""
        _check_slot(layout, out[0], file)
        reader = self._reader(layout)
        if reader is not None and out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write_packed(slots, out)
            return
        for slot, place in zip(slots, out, strict=True):
            self._draw(kept_picture(layout, slot), place, file)

    def _draw(self, picture: DecodedFrame, out: Picture, file: str) -> None:
        """Do what the layout of a picture asks for: the one place that knows all of them."""
        if picture.layout.kind == "depth":
            (out[0],) = picture.arrays()
        elif picture.layout.kind in PLANAR_8BIT:
            self._draw_420(picture, out, file)
        else:
            _write_planes(picture, out)

    def _draw_420(self, picture: DecodedFrame, out: Picture, file: str) -> None:
        layout = picture.layout
        reader = self._reader(layout)
        if reader is None:
            _write_planes(self._through_pyav(picture, file), out)
        elif out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write(picture, out)
        else:
            if layout not in self._colours:
                self._colours[layout] = np.empty(out.shape, np.uint8)
            colours = self._colours[layout]
            reader.write(picture, colours)
            _write_colours(colours, out)

    def _through_pyav(self, picture: DecodedFrame, file: str) -> DecodedFrame:
        """Return 4:2:0 as RGB."""
        layout = picture.layout
        if layout not in self._wide:
            self._wide[layout] = _WideFrame(layout)
        frame = self._wide[layout].filled(picture)
        green, blue, red = to_format(self._reformatter, frame, "gbrp", file).planes
        colours = kept_layout("rgb", layout.width, layout.height, 0, 0)
        return DecodedFrame(colours, tuple(map(plane_of, (red, green, blue))))

    def _reader(self, layout: FrameLayout) -> PlaneReader | None:
        if layout not in self._readers:
            self._readers[layout] = _open_reader(layout, self._ffmpeg)
        return self._readers[layout]


class _WideFrame:
    """A frame wide enough for FFmpeg's fast conversion; 4:2:0 pictures are copied into it."""

    def __init__(self, layout: FrameLayout) -> None:
        width = -(-layout.width // _GBRP_WIDTH_MULTIPLE) * _GBRP_WIDTH_MULTIPLE
        self._frame = av.VideoFrame(width, layout.height, layout.kind)
        self._frame.colorspace = layout.colorspace
        self._frame.color_range = layout.color_range
        self._planes = DecodedFrame(layout, tuple(map(plane_of, self._frame.planes))).arrays()

    def filled(self, picture: DecodedFrame) -> av.VideoFrame:
        """Return the frame with a picture in its left part."""
        for mine, plane in zip(self._planes, picture.arrays(), strict=True):
            mine[:] = plane
        return self._frame


def _open_reader(layout: FrameLayout, ffmpeg: Ffmpeg | None) -> PlaneReader | None:
    if ffmpeg is None or layout.kind not in PLANAR_8BIT or layout.width % _GBRP_WIDTH_MULTIPLE:
        return None
    size, colours = (layout.width, layout.height), (layout.colorspace, layout.color_range)
    if not is_proven(ffmpeg, layout.kind, layout.width, colours):
        return None
    return PlaneReader(ffmpeg, layout.kind, size, colours)


def _write_planes(picture: DecodedFrame, out: Picture) -> None:
    for plane, channel in zip(picture.arrays(), out, strict=True):
        _write_colours(plane, channel)


def _write_colours(colours: npt.NDArray[np.uint8], out: Picture) -> None:
    out[:] = colours
    if out.dtype == np.float32:
        # A true division: multiplying by 1/255 differs in the last bit.
        np.divide(out, _WHITE, out=out)


def _check_device(picture: DecodedFrame) -> None:
    if picture.device != CPU:
        raise ValueError(f"pictures are drawn on the CPU; this one lies on {picture.device}")


def _check_slot(layout: FrameLayout, out: Picture, file: str) -> None:
    if out.shape != layout.shape or out.dtype not in layout.dtypes:
        raise VideoFileError(
            f"{file}: the video holds {'depth' if layout.kind == 'depth' else 'colour'} pictures "
            f"of {layout.width}x{layout.height}, which fill slots of shape {layout.shape} and type "
            f"{' or '.join(d.name for d in layout.dtypes)}; asked for {out.shape} of "
            f"{out.dtype.name}. All pictures of a sample must have one size, and a camera is depth "
            "or colour, whichever meta/info.json says."
        )
