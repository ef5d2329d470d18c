# SPDX-License-Identifier: Apache-2.0
"""Decoded frames: their layout in memory, their planes, and how PyAV's frames become them."""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, NamedTuple

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import VideoReformatter

from robostream.errors import VideoFileError

CPU = "cpu"
# FFmpeg's vector code may read a little past the end of a frame.
MARGIN_BYTES = 256
# Vector instructions are fastest with frames that begin at a multiple of this.
_ALIGN_BYTES = 64
PLANAR_8BIT = ("yuv420p", "yuvj420p")
_GRAY_16BIT = ("gray12le", "gray10le", "gray16le")
_DEPTH_TYPES = (np.dtype(np.uint16),)
_COLOUR_TYPES = (np.dtype(np.uint8), np.dtype(np.float32))
_LIMITED_RANGE, _FULL_RANGE = 1, 2
_BT709, _BT601 = 1, 5
# RGB, BT.709, unspecified, FCC, BT.470BG, BT.601, SMPTE 240M, BT.2020: what FFmpeg converts.
COLORSPACES = (0, 1, 2, 4, 5, 6, 7, 9)


_address, _line_bytes = attrgetter("buffer_ptr"), attrgetter("line_size")


@dataclass(frozen=True, slots=True, eq=False)
class FrameLayout:
    """How a packed frame lies in its bytes: as decoded (4:2:0), as RGB, or as depth codes.

    `shape` and `dtypes` are those of the arrays that it can be drawn into. Equal layouts are one
    object (see `frame_layout`), so they are compared and hashed by identity, which is fast.
    """

    kind: str
    width: int
    height: int
    colorspace: int
    color_range: int
    nbytes: int = field(init=False)
    shape: tuple[int, int, int] = field(init=False)
    dtypes: tuple[np.dtype[Any], ...] = field(init=False)

    def __post_init__(self) -> None:
        content = sum(width * height for width, height in self.plane_sizes)
        depth = self.kind == "depth"
        # A multiple of 64, so that every frame begins where vector instructions are fastest.
        object.__setattr__(self, "nbytes", -(-content // 64) * 64)
        object.__setattr__(self, "shape", (1 if depth else 3, self.height, self.width))
        object.__setattr__(self, "dtypes", _DEPTH_TYPES if depth else _COLOUR_TYPES)

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

    def check_slot(self, shape: tuple[int, ...], dtype: npt.DTypeLike, file: str) -> None:
        """Raise VideoFileError unless a frame fits (channels, height, width) of a type."""
        if shape == self.shape and dtype in self.dtypes:
            return
        found, wanted = (self.width, self.height), (shape[-1], shape[-2])
        sizes = "" if found == wanted else describe_size_mismatch(found, wanted) + " "
        raise VideoFileError(
            f"{file}: {sizes}The video holds {'depth' if self.kind == 'depth' else 'colour'} "
            f"frames of {self.width}x{self.height}, which fill slots of shape {self.shape} and "
            f"type {' or '.join(d.name for d in self.dtypes)}; asked for {shape} of "
            f"{np.dtype(dtype).name}. A camera is depth or colour, whichever meta/info.json says."
        )


@functools.cache
def frame_layout(
    kind: str, width: int, height: int, colorspace: int, color_range: int
) -> FrameLayout:
    """Return the one layout with these properties."""
    return FrameLayout(kind, width, height, colorspace, color_range)


def describe_size_mismatch(found: tuple[int, int], others: tuple[int, int]) -> str:
    """Return the message for an image that cannot be batched with others; (width, height)."""
    return (
        "the image is {}x{} (width x height), those it is to be put together with are {}x{}. "
        "Images of one camera must have one size to be batched: pass resize=(height, width), or "
        "choose episodes of one size."
    ).format(*found, *others)


class Plane(NamedTuple):
    """The rows of one plane.

    Attributes:
        memory: The buffer that holds them; it lives as long as this does.
        address: Where the first row begins.
        line_bytes: The distance from the start of one row to the next.
    """

    memory: Any
    address: int
    line_bytes: int


class DecodedFrame(NamedTuple):
    """A decoded frame. Its planes stay valid as long as it is referenced.

    Attributes:
        layout: The format of the planes, and how they are packed: 8-bit 4:2:0, RGB or depth codes.
        planes: In the order of `layout.plane_sizes`. On a GPU there is one: the packed frame.
        device: The device whose memory holds the planes.
    """

    layout: FrameLayout
    planes: tuple[Plane, ...]
    device: str = CPU

    def arrays(self) -> list[npt.NDArray[Any]]:
        """Return the planes as arrays that share their memory: uint8, depth codes uint16."""
        dtype = np.uint16 if self.layout.kind == "depth" else np.uint8
        return [
            np.frombuffer(memoryview(plane.memory), np.uint8)
            .reshape(-1, plane.line_bytes)[:height, :width]
            .view(dtype)
            for plane, (width, height) in zip(self.planes, self.layout.plane_sizes, strict=True)
        ]


def frame_of_arrays(layout: FrameLayout, arrays: Iterable[npt.NDArray[Any]]) -> DecodedFrame:
    """Return a frame whose planes are arrays (height, width), each contiguous."""
    planes = tuple(Plane(a, a.ctypes.data, a.strides[0]) for a in arrays)
    return DecodedFrame(layout, planes)


class SlotMemory(NamedTuple):
    """The bytes of a slot, and their address, stored because numpy is slow to give it."""

    content: npt.NDArray[np.uint8]
    address: int


def allocate(nbytes: int) -> SlotMemory:
    """Return memory for one frame outside any pool."""
    memory = np.empty(nbytes + MARGIN_BYTES, np.uint8)
    address = memory.ctypes.data
    first = -address % _ALIGN_BYTES
    return SlotMemory(memory[first : first + nbytes], address + first)


class PackedFrame(NamedTuple):
    """A frame in contiguous memory, its planes one after the other without padding."""

    content: npt.NDArray[np.uint8]
    address: int
    layout: FrameLayout


def unpack(packed: PackedFrame) -> DecodedFrame:
    """Return a packed frame by planes that share its memory."""
    planes, at = [], 0
    for width, height in packed.layout.plane_sizes:
        end = at + width * height
        planes.append(Plane(packed.content[at:end], packed.address + at, width))
        at = end
    return DecodedFrame(packed.layout, tuple(planes))


class FrameReader:
    """Reads PyAV's frames. For one thread.

    8-bit 4:2:0 and depth are taken without a copy. Every other format becomes RGB here, so that the
    code after this handles three kinds of planes.
    """

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def read(self, frame: av.VideoFrame, file: str) -> DecodedFrame:
        """Return a decoded frame. Raises VideoFileError if FFmpeg cannot convert its colours."""
        layout = _layout_of(
            frame.format.name, frame.width, frame.height, frame.colorspace, frame.color_range
        )
        if layout.kind == "rgb":
            (plane,) = to_format(self._reformatter, frame, "rgb24", file).planes
            rows = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, -1)
            pixels = rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)
            return frame_of_arrays(layout, np.ascontiguousarray(pixels.transpose(2, 0, 1)))
        planes = frame.planes
        where = map(_address, planes), map(_line_bytes, planes)
        return DecodedFrame(layout, tuple(map(Plane, planes, *where)))


def plane_of(plane: VideoPlane) -> Plane:
    """Return a plane of PyAV's, which stays alive with it."""
    return Plane(plane, plane.buffer_ptr, plane.line_size)


@functools.cache
def _layout_of(
    name: str, width: int, height: int, colorspace: int, color_range: int
) -> FrameLayout:
    if name in PLANAR_8BIT and height % 2 == 0:
        # 4:2:0 takes half the bytes of RGB, and converting it takes no longer than copying RGB.
        return frame_layout(name, width, height, colorspace, color_range)
    return frame_layout("depth" if name in _GRAY_16BIT else "rgb", width, height, 0, 0)


def to_format(
    reformatter: VideoReformatter, frame: av.VideoFrame, name: str, file: str
) -> av.VideoFrame:
    """Return a frame in another format, or raise VideoFileError."""
    try:
        return convert(reformatter, frame, name)
    except av.FFmpegError as error:
        raise VideoFileError(
            f"{file}: FFmpeg cannot convert {frame.format.name} of colour space "
            f"{frame.colorspace} to RGB ({error.strerror}). Re-encode the file."
        ) from error


def convert(reformatter: VideoReformatter, frame: av.VideoFrame, name: str) -> av.VideoFrame:
    """Return a frame in another format, by its colour tags, on this thread alone.

    From version 17 on, PyAV reads the colour tags of a frame. Earlier versions take every frame for
    BT.601, and only formats called yuvj for full range, so the colours of a BT.709 video are up to
    55 levels off. They get the tags as options.
    """
    return reformatter.reformat(frame, format=name, **(one_thread() or _tags_of(frame)))


@functools.cache
def one_thread() -> dict[str, Any]:
    """Return the option that keeps a conversion on the calling thread.

    The other cores are busy. PyAV before 17 has no such option and always uses one thread.
    """
    probe = av.VideoFrame(16, 16, "rgb24")
    try:
        VideoReformatter().reformat(probe, format="yuv420p", threads=1)
    except TypeError:
        return {}
    return {"threads": 1}


def is_full_range(name: str, color_range: int) -> bool:
    """Return whether the values of a format with this tag range from 0 to 255. Pure."""
    return name.startswith("yuvj") or color_range == _FULL_RANGE


def _tags_of(frame: av.VideoFrame) -> dict[str, int]:
    """Return the colour tags of a frame as options, for PyAV before 17."""
    if frame.format.is_rgb:
        return {}
    if frame.colorspace not in COLORSPACES:
        raise av.FFmpegError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    is_full = is_full_range(frame.format.name, frame.color_range)
    return {
        "src_colorspace": frame.colorspace,
        # RGB has no such matrix. But PyAV uses the source's only if the two options differ.
        "dst_colorspace": _BT601 if frame.colorspace == _BT709 else _BT709,
        "src_color_range": _FULL_RANGE if is_full else _LIMITED_RANGE,
        "dst_color_range": _FULL_RANGE,
    }
