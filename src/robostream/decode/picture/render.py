# SPDX-License-Identifier: Apache-2.0
"""From decoded frames to pictures in a batch, and to and from the bytes kept in between.

Colours are what FFmpeg's conversion to rgb24 gives, bit for bit. Converting 8-bit 4:2:0 straight to
planes (gbrp) gives the same values several times faster than rgb24 and a transpose, with two
exceptions found by measuring: FFmpeg before 9 leaves up to 8 columns at the right edge unwritten
when the width is no multiple of 16, so such frames are widened first; and odd heights take another
rounding, so they go through rgb24.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import VideoReformatter

from robostream.decode.picture.arena import SlotMemory
from robostream.decode.picture.conversion import convert
from robostream.decode.picture.layout import PLANAR_8BIT, PictureLayout
from robostream.decode.picture.native import Ffmpeg, PlaneReader
from robostream.decode.picture.proof import is_proven
from robostream.errors import VideoFileError

Bytes = npt.NDArray[np.uint8]
Picture = npt.NDArray[Any]

_GBRP_WIDTH_MULTIPLE = 16
_WHITE = np.float32(255)


class Renderer:
    """Turns frames into pictures. For one thread: it reuses its scratch memory.

    With `ffmpeg` None, numpy does the copying; the pictures are the same.
    """

    def __init__(self, ffmpeg: Ffmpeg | None) -> None:
        self._ffmpeg = ffmpeg
        self._reformatter = VideoReformatter()
        self._readers: dict[PictureLayout, PlaneReader | None] = {}
        self._wide: dict[PictureLayout, _WideFrame] = {}
        self._colours: dict[PictureLayout, Bytes] = {}

    def draw(self, frame: av.VideoFrame, layout: PictureLayout, out: Picture, *, file: str) -> None:
        """Write a decoded frame into one slot of a batch, shaped (channels, height, width).

        A colour slot is uint8, or float32 in [0, 1]; a depth slot is uint16 codes.
        """
        _check_slot(layout, out, file)
        if layout.kind == "depth":
            out[0] = plane_rows(frame.planes[0], np.uint16)[:, : layout.width]
        elif layout.kind in PLANAR_8BIT:
            self._draw_420(frame, layout, out, file)
        elif frame.format.name == "gbrp":
            _write_planes(frame, out)
        else:
            (plane,) = self._reformat(frame, "rgb24", file).planes
            rows = plane_rows(plane, np.uint8)[:, : 3 * layout.width]
            _write_colours(rows.reshape(layout.height, -1, 3).transpose(2, 0, 1), out)

    def pack(
        self, frame: av.VideoFrame, layout: PictureLayout, slot: SlotMemory, *, file: str
    ) -> None:
        """Write a decoded frame into the memory that keeps it."""
        reader = self._reader(layout)
        if reader is not None:
            reader.pack(frame, slot)
        elif layout.kind in PLANAR_8BIT:
            at = 0
            for plane, (width, height) in zip(frame.planes, layout.plane_sizes, strict=True):
                kept = slot.content[at : at + width * height].reshape(height, width)
                kept[:] = plane_rows(plane, np.uint8)[:, :width]
                at += width * height
        else:
            self.draw(frame, layout, _as_picture(slot.content, layout), file=file)

    def draw_packed(
        self, slots: Sequence[SlotMemory], layout: PictureLayout, out: Picture, *, file: str
    ) -> None:
        """Write kept frames into slots of a batch, shaped (frames, channels, height, width)."""
        _check_slot(layout, out[0], file)
        reader = self._reader(layout)
        if reader is not None and out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write_packed(slots, out)
            return
        for slot, picture in zip(slots, out, strict=True):
            if layout.kind in PLANAR_8BIT:
                self._draw_420(slot, layout, picture, file)
            elif layout.kind == "depth":
                picture[:] = _as_picture(slot.content, layout)
            else:
                _write_colours(_as_picture(slot.content, layout), picture)

    def _draw_420(
        self, frame: av.VideoFrame | SlotMemory, layout: PictureLayout, out: Picture, file: str
    ) -> None:
        reader = self._reader(layout)
        if reader is None:
            wide = self._wide_frame(layout)
            wide.fill(frame)
            _write_planes(self._reformat(wide.frame, "gbrp", file), out)
        elif out.dtype == np.uint8 and out.flags.c_contiguous:
            reader.write(frame, out)
        else:
            if layout not in self._colours:
                self._colours[layout] = np.empty(out.shape, np.uint8)
            colours = self._colours[layout]
            reader.write(frame, colours)
            _write_colours(colours, out)

    def _reader(self, layout: PictureLayout) -> PlaneReader | None:
        if layout not in self._readers:
            self._readers[layout] = _open_reader(layout, self._ffmpeg)
        return self._readers[layout]

    def _wide_frame(self, layout: PictureLayout) -> _WideFrame:
        if layout not in self._wide:
            self._wide[layout] = _WideFrame(layout)
        return self._wide[layout]

    def _reformat(self, frame: av.VideoFrame, name: str, file: str) -> av.VideoFrame:
        try:
            return convert(self._reformatter, frame, name)
        except av.FFmpegError as error:
            raise VideoFileError(
                f"{file}: FFmpeg cannot turn {frame.format.name} of colour space "
                f"{frame.colorspace} into RGB ({error.strerror}). Re-encode the file."
            ) from error


class _WideFrame:
    """A frame of FFmpeg's, wide enough for its fast conversion, to copy others into."""

    def __init__(self, layout: PictureLayout) -> None:
        width = -(-layout.width // _GBRP_WIDTH_MULTIPLE) * _GBRP_WIDTH_MULTIPLE
        self.frame = av.VideoFrame(width, layout.height, layout.kind)
        self.frame.colorspace = layout.colorspace
        self.frame.color_range = layout.color_range
        self._planes = [
            plane_rows(plane, np.uint8)[:, :width]
            for plane, (width, _) in zip(self.frame.planes, layout.plane_sizes, strict=True)
        ]

    def fill(self, frame: av.VideoFrame | SlotMemory) -> None:
        """Copy a frame, or a kept one, to the left."""
        if isinstance(frame, av.VideoFrame):
            for mine, plane in zip(self._planes, frame.planes, strict=True):
                mine[:] = plane_rows(plane, np.uint8)[:, : mine.shape[1]]
            return
        at = 0
        for mine in self._planes:
            mine[:] = frame.content[at : at + mine.size].reshape(mine.shape)
            at += mine.size


def _open_reader(layout: PictureLayout, ffmpeg: Ffmpeg | None) -> PlaneReader | None:
    if ffmpeg is None or layout.kind not in PLANAR_8BIT or layout.width % _GBRP_WIDTH_MULTIPLE:
        return None
    size, colours = (layout.width, layout.height), (layout.colorspace, layout.color_range)
    if not is_proven(ffmpeg, layout.kind, layout.width, colours):
        return None
    return PlaneReader(ffmpeg, layout.kind, size, colours)


def plane_rows(plane: VideoPlane, dtype: type[np.uint8 | np.uint16]) -> npt.NDArray[Any]:
    """Return a plane's rows as an array that shares its memory, padding included."""
    rows: npt.NDArray[Any] = np.frombuffer(memoryview(plane), dtype).reshape(plane.height, -1)
    return rows


def _as_picture(slot: Bytes, layout: PictureLayout) -> Picture:
    """Return the finished picture in kept bytes."""
    pixels = layout.height * layout.width
    if layout.kind == "depth":
        return slot[: 2 * pixels].view(np.uint16).reshape(1, layout.height, layout.width)
    return slot[: 3 * pixels].reshape(3, layout.height, layout.width)


def _write_planes(frame: av.VideoFrame, out: Picture) -> None:
    green, blue, red = frame.planes
    width = out.shape[2]
    for plane, channel in ((red, out[0]), (green, out[1]), (blue, out[2])):
        _write_colours(plane_rows(plane, np.uint8)[:, :width], channel)


def _write_colours(colours: npt.NDArray[np.uint8], out: Picture) -> None:
    out[:] = colours
    if out.dtype == np.float32:
        # A true division: multiplying by 1/255 differs in the last bit.
        np.divide(out, _WHITE, out=out)


def _check_slot(layout: PictureLayout, out: Picture, file: str) -> None:
    if out.shape != layout.shape or out.dtype not in layout.dtypes:
        raise VideoFileError(
            f"{file}: the video holds {'depth' if layout.kind == 'depth' else 'colour'} pictures "
            f"of {layout.width}x{layout.height}, which fill slots of shape {layout.shape} and type "
            f"{' or '.join(d.name for d in layout.dtypes)}; asked for {out.shape} of "
            f"{out.dtype.name}. All pictures of a sample must have one size, and a camera is depth "
            "or colour as meta/info.json says."
        )
