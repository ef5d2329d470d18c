# SPDX-License-Identifier: Apache-2.0
"""From decoded frames to pictures in a batch, and to and from the bytes kept in between.

Colours are what FFmpeg's conversion to rgb24 gives, bit for bit. Converting 8-bit 4:2:0 straight to
planes (gbrp) gives the same values several times faster than rgb24 and a transpose, with two
exceptions found by measuring: FFmpeg 8.1 leaves up to 8 columns at the right edge unwritten when
the width is no multiple of 16, so such frames are widened first; and odd heights take another
rounding, so they go through rgb24.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import VideoReformatter

from robostream.decode.conversion import one_thread
from robostream.errors import VideoFileError

Bytes = npt.NDArray[np.uint8]
Picture = npt.NDArray[Any]

_PLANAR_8BIT = ("yuv420p", "yuvj420p")
_GRAY_16BIT = ("gray12le", "gray10le", "gray16le")
_GBRP_WIDTH_MULTIPLE = 16
_WHITE = np.float32(255)


@dataclass(frozen=True, slots=True)
class Layout:
    """How a kept frame lies in its bytes: as decoded (4:2:0), or as the finished picture."""

    kind: str
    width: int
    height: int
    colorspace: int
    color_range: int
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        sizes = sum(width * height for width, height in self.plane_sizes)
        # A multiple of 64, so that every frame begins where vector instructions like it.
        object.__setattr__(self, "nbytes", -(-sizes // 64) * 64)

    @property
    def plane_sizes(self) -> list[tuple[int, int]]:
        """The (width, height) of each plane, in bytes."""
        whole = (self.width, self.height)
        if self.kind == "depth":
            return [(2 * self.width, self.height)]
        if self.kind == "rgb":
            return [whole, whole, whole]
        half = ((self.width + 1) // 2, self.height // 2)
        return [whole, half, half]


def layout_of(frame: av.VideoFrame) -> Layout:
    """Return how a decoded frame is kept."""
    return _layout(
        frame.format.name, frame.width, frame.height, frame.colorspace, frame.color_range
    )


@lru_cache(maxsize=256)
def _layout(name: str, width: int, height: int, colorspace: int, color_range: int) -> Layout:
    if name in _PLANAR_8BIT and height % 2 == 0:
        # Half the bytes of RGB, and as quick to turn into a picture as RGB is to copy.
        return Layout(name, width, height, colorspace, color_range)
    return Layout("depth" if name in _GRAY_16BIT else "rgb", width, height, 0, 0)


def frame_over(layout: Layout, slot: Bytes) -> av.VideoFrame | None:
    """Return a frame of FFmpeg's whose memory is the kept bytes, or None if that cannot be.

    Drawing from it saves the copy into scratch memory; several threads may draw from it at once.
    """
    if layout.kind not in _PLANAR_8BIT or layout.width % _GBRP_WIDTH_MULTIPLE:
        return None
    rows = slot[: layout.width * layout.height * 3 // 2].reshape(-1, layout.width)
    frame = av.VideoFrame.from_numpy_buffer(rows, layout.kind)
    frame.colorspace, frame.color_range = layout.colorspace, layout.color_range
    return frame


class Renderer:
    """Turns frames into pictures. For one thread: it reuses its scratch memory."""

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()
        self._scratch: dict[Layout, _Scratch] = {}

    def draw(self, frame: av.VideoFrame, layout: Layout, out: Picture, *, file: str) -> None:
        """Write a decoded frame into one slot of a batch, shaped (channels, height, width).

        A colour slot is uint8, or float32 in [0, 1]; a depth slot is uint16 codes.
        """
        _check_slot(layout, out, file)
        if layout.kind == "depth":
            out[0] = _plane(frame.planes[0], np.uint16)[:, : layout.width]
        elif frame.format.name == "gbrp":
            _write_planes(frame, out)
        elif layout.kind == "rgb":
            self._draw_through_rgb24(frame, out)
        elif layout.width % _GBRP_WIDTH_MULTIPLE:
            scratch = self._scratch_for(layout)
            scratch.fill_from(frame)
            self._draw_planes(scratch.frame, out)
        else:
            self._draw_planes(frame, out)

    def pack(self, frame: av.VideoFrame, layout: Layout, slot: Bytes, *, file: str) -> None:
        """Write a decoded frame into the bytes that keep it."""
        if layout.kind == "depth":
            self.draw(frame, layout, _as_depth(slot, layout), file=file)
        elif layout.kind == "rgb":
            self.draw(frame, layout, _as_rgb(slot, layout), file=file)
        else:
            at = 0
            for plane, (width, height) in zip(frame.planes, layout.plane_sizes, strict=True):
                stop = at + width * height
                if plane.line_size == width:
                    slot[at:stop].data[:] = memoryview(plane)  # see _write_planes
                else:
                    slot[at:stop].reshape(height, width)[:] = _plane(plane, np.uint8)[:, :width]
                at = stop

    def draw_packed(
        self,
        layout: Layout,
        slot: Bytes,
        over: av.VideoFrame | None,
        out: Picture,
        *,
        file: str,
    ) -> None:
        """Write a kept frame, and the frame over it if there is one, into one slot of a batch."""
        _check_slot(layout, out, file)
        if over is not None:
            self._draw_planes(over, out)
        elif layout.kind == "depth":
            out[:] = _as_depth(slot, layout)
        elif layout.kind == "rgb":
            _write_colours(_as_rgb(slot, layout), out)
        else:
            scratch = self._scratch_for(layout)
            scratch.fill_from_bytes(slot)
            self._draw_planes(scratch.frame, out)

    def _draw_planes(self, frame: av.VideoFrame, out: Picture) -> None:
        _write_planes(self._reformatter.reformat(frame, format="gbrp", **one_thread()), out)

    def _draw_through_rgb24(self, frame: av.VideoFrame, out: Picture) -> None:
        (plane,) = self._reformatter.reformat(frame, format="rgb24", **one_thread()).planes
        rows = _plane(plane, np.uint8)[:, : 3 * out.shape[2]]
        _write_colours(rows.reshape(*rows.shape[:1], -1, 3).transpose(2, 0, 1), out)

    def _scratch_for(self, layout: Layout) -> _Scratch:
        if layout not in self._scratch:
            self._scratch[layout] = _Scratch(layout)
        return self._scratch[layout]


class _Scratch:
    """A frame of FFmpeg's, wide enough for its fast conversion, that kept bytes are copied into."""

    def __init__(self, layout: Layout) -> None:
        width = -(-layout.width // _GBRP_WIDTH_MULTIPLE) * _GBRP_WIDTH_MULTIPLE
        self.frame = av.VideoFrame(width, layout.height, layout.kind)
        self.frame.colorspace = layout.colorspace
        self.frame.color_range = layout.color_range
        self._planes = [
            _plane(plane, np.uint8)[:, :width]
            for plane, (width, _) in zip(self.frame.planes, layout.plane_sizes, strict=True)
        ]

    def fill_from(self, frame: av.VideoFrame) -> None:
        for mine, plane in zip(self._planes, frame.planes, strict=True):
            mine[:] = _plane(plane, np.uint8)[:, : mine.shape[1]]

    def fill_from_bytes(self, slot: Bytes) -> None:
        at = 0
        for mine in self._planes:
            mine[:] = slot[at : at + mine.size].reshape(mine.shape)
            at += mine.size


def _plane(plane: VideoPlane, dtype: type[np.uint8 | np.uint16]) -> npt.NDArray[Any]:
    """Return a plane's rows as an array that shares its memory, padding included."""
    rows: npt.NDArray[Any] = np.frombuffer(memoryview(plane), dtype).reshape(plane.height, -1)
    return rows


def _as_rgb(slot: Bytes, layout: Layout) -> Bytes:
    return slot[: 3 * layout.height * layout.width].reshape(3, layout.height, layout.width)


def _as_depth(slot: Bytes, layout: Layout) -> npt.NDArray[np.uint16]:
    codes = slot[: 2 * layout.height * layout.width].view(np.uint16)
    return codes.reshape(1, layout.height, layout.width)


def _write_planes(frame: av.VideoFrame, out: Picture) -> None:
    green, blue, red = frame.planes
    width = out.shape[2]
    for plane, channel in ((red, out[0]), (green, out[1]), (blue, out[2])):
        if plane.line_size == width and out.dtype == np.uint8:
            # Not numpy's copy: that hands the interpreter over to another thread, and getting it
            # back takes longer than the copy.
            channel.reshape(-1).data[:] = memoryview(plane)
        else:
            _write_colours(_plane(plane, np.uint8)[:, :width], channel)


def _write_colours(colours: npt.NDArray[np.uint8], out: Picture) -> None:
    out[:] = colours
    if out.dtype == np.float32:
        # A true division: multiplying by 1/255 differs in the last bit.
        np.divide(out, _WHITE, out=out)


def _check_slot(layout: Layout, out: Picture, file: str) -> None:
    depth = layout.kind == "depth"
    wanted = (1 if depth else 3, layout.height, layout.width)
    dtypes = (np.uint16,) if depth else (np.uint8, np.float32)
    if out.shape != wanted or out.dtype not in dtypes:
        raise VideoFileError(
            f"{file}: the video holds {'depth' if depth else 'colour'} pictures of "
            f"{layout.width}x{layout.height}, which fill slots of shape {wanted} and type "
            f"{' or '.join(np.dtype(d).name for d in dtypes)}; asked for {out.shape} of "
            f"{out.dtype.name}. The feature's shape in meta/info.json does not fit this video."
        )
