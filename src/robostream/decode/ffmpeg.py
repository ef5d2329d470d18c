# SPDX-License-Identifier: Apache-2.0
"""Colour conversion and copies through functions of FFmpeg, called directly.

PyAV converts a frame into memory of its own, from which numpy then copies plane by plane. FFmpeg
can write straight into a batch, and copy a frame in one call: 18 instead of 46 us to draw a frame
of 256x256, 12 instead of 16 us to pack it.

`load_ffmpeg` returns None if the libraries PyAV has loaded, or a function, cannot be found; then
PyAV and numpy do the work. A format is converted here only if `is_proven` for it: what FFmpeg
gives depends on its version, its build and the processor.
"""

from __future__ import annotations

import ctypes
import logging
import operator
import random
import weakref
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
from av.video.reformatter import VideoReformatter

from robostream.decode.frames import (
    DecodedFrame,
    FrameReader,
    PackedFrame,
    allocate,
    convert,
    is_full_range,
)

logger = logging.getLogger(__name__)

_SWS_BILINEAR = 2  # as PyAV does it; nothing is scaled
_UNITY = 1 << 16
_LIBRARIES = ("swscale", "avutil")
# So many pixels show any difference in rounding, and are drawn in about a millisecond.
_PROOF_PIXELS = 1 << 16

_Int = ctypes.c_int
_Pointer = ctypes.c_void_p
_Pointers = ctypes.c_void_p * 4
_Lines = ctypes.c_int * 4
_Byte = ctypes.c_char
_address = operator.attrgetter("address")


class Ffmpeg:
    """FFmpeg's functions, with the types of their arguments."""

    def __init__(self, swscale: ctypes.CDLL, avutil: ctypes.CDLL) -> None:
        self.pix_fmt = avutil.av_get_pix_fmt
        self.pix_fmt.argtypes = [ctypes.c_char_p]
        self.copy = avutil.av_image_copy_to_buffer
        self.copy.argtypes = [_Pointer, _Int, _Pointers, _Lines, _Int, _Int, _Int, _Int]
        self.open = swscale.sws_getContext
        self.open.argtypes = [_Int] * 7 + [_Pointer] * 3
        self.open.restype = _Pointer
        self.close = swscale.sws_freeContext
        self.close.argtypes = [_Pointer]
        self.matrix = swscale.sws_getCoefficients
        self.matrix.restype = _Pointer
        self.set_colours = swscale.sws_setColorspaceDetails
        self.set_colours.argtypes = [_Pointer, _Pointer, _Int, _Pointer, _Int, _Int, _Int, _Int]
        self.convert = swscale.sws_scale
        self.convert.argtypes = [_Pointer, _Pointers, _Lines, _Int, _Int, _Pointers, _Lines]


@lru_cache(maxsize=1)
def load_ffmpeg() -> Ffmpeg | None:
    """Return the functions of the libraries this process has loaded, or None."""
    try:
        mapped = set(Path("/proc/self/maps").read_text().split())
        swscale, avutil = (_find_library(name, mapped) for name in _LIBRARIES)
        return Ffmpeg(swscale, avutil)
    except (OSError, AttributeError) as error:
        logger.info(
            "FFmpeg cannot be called directly (%s); frames are drawn through PyAV, slower.",
            error,
        )
        return None


def _find_library(name: str, mapped: set[str]) -> ctypes.CDLL:
    """Return PyAV's own copy of a library.

    OpenCV, torchcodec and other packages may have loaded other versions of FFmpeg.
    """
    wanted = av.library_versions[f"lib{name}"]
    for path in sorted(word for word in mapped if f"/lib{name}" in word):
        library = ctypes.CDLL(path)
        version = getattr(library, f"{name}_version")()
        if (version >> 16, version >> 8 & 0xFF, version & 0xFF) == tuple(wanted):
            return library
    raise OSError(f"no lib{name} of version {wanted} is loaded")


class PlaneReader:
    """Converts and copies planar frames of one format, size and colour coding. For one thread."""

    def __init__(
        self, ffmpeg: Ffmpeg, name: str, size: tuple[int, int], colours: tuple[int, int]
    ) -> None:
        self._ffmpeg = ffmpeg
        self._size = size
        self._pix_fmt = ffmpeg.pix_fmt(name.encode())
        rgb = ffmpeg.pix_fmt(b"gbrp")
        self._context = ffmpeg.open(
            *size, self._pix_fmt, *size, rgb, _SWS_BILINEAR, None, None, None
        )
        if not self._context:
            raise MemoryError("FFmpeg could not set up a colour conversion")
        weakref.finalize(self, ffmpeg.close, self._context)
        colorspace, color_range = colours
        is_full = is_full_range(name, color_range)
        matrix = ffmpeg.matrix(colorspace)
        ffmpeg.set_colours(self._context, matrix, is_full, matrix, 1, 0, _UNITY, _UNITY)
        self._from, self._to = _Pointers(), _Pointers()
        width, height = size
        half = (width + 1) // 2
        self._to_lines, self._packed_lines = _Lines(width, width, width), _Lines(width, half, half)
        self._pixels = width * height
        self._packed_at = self._pixels, self._pixels + half * (height // 2)

    def write(self, frame: DecodedFrame, out: npt.NDArray[Any]) -> None:
        """Convert a frame into contiguous uint8 planes (3, height, width)."""
        y, u, v = frame.planes
        lines = _Lines(y.line_bytes, u.line_bytes, v.line_bytes)
        offsets = u.address - y.address, v.address - y.address
        self._convert([y.address], offsets, lines, out)

    def write_packed(self, packed: Sequence[PackedFrame], out: npt.NDArray[Any]) -> None:
        """Convert packed frames into contiguous uint8 planes (frames, 3, height, width)."""
        self._convert(map(_address, packed), self._packed_at, self._packed_lines, out)

    def _convert(
        self,
        frames: Iterable[int],
        offsets: tuple[int, int],
        lines: ctypes.Array[ctypes.c_int],
        out: npt.NDArray[Any],
    ) -> None:
        """Convert frames, given by the addresses of y and the offsets of u and v from there."""
        scale, context, source, to = self._ffmpeg.convert, self._context, self._from, self._to
        (_, height), pixels, to_lines = self._size, self._pixels, self._to_lines
        # Several times faster than asking numpy, and raises an error if memory is not contiguous.
        red = ctypes.addressof(_Byte.from_buffer(out))  # type: ignore[arg-type]
        u, v = offsets
        for y in frames:
            source[0], source[1], source[2] = y, y + u, y + v
            # FFmpeg's planes are in the order green, blue, red.
            to[0], to[1], to[2] = red + pixels, red + 2 * pixels, red
            done = scale(context, source, lines, 0, height, to, to_lines)
            if done != height:
                raise RuntimeError(f"FFmpeg converted {done} of {height} lines of a frame")
            red += 3 * pixels

    def pack(self, frame: DecodedFrame, packed: PackedFrame) -> None:
        """Copy a frame's planes, one after the other and without padding, into memory."""
        (_, y, y_line), (_, u, u_line), (_, v, v_line) = frame.planes
        planes, lines = _Pointers(y, u, v), _Lines(y_line, u_line, v_line)
        nbytes = packed.content.nbytes
        copied = self._ffmpeg.copy(
            packed.address, nbytes, planes, lines, self._pix_fmt, *self._size, 1
        )
        if copied < 0:
            raise RuntimeError(f"FFmpeg could not copy a frame of {self._size} into {nbytes} bytes")


@lru_cache(maxsize=1024)
def is_proven(ffmpeg: Ffmpeg, name: str, width: int, colours: tuple[int, int]) -> bool:
    """Return whether FFmpeg draws noise of this format, width and colour coding as PyAV does.

    One frame is enough for all heights: FFmpeg converts line by line, and each pixel from its own
    values. Which function it uses, and how it treats the end of a line, depends on the format, the
    width and whether the height is even; odd heights are never drawn in this way.
    """
    try:
        is_same = _draws_the_same(ffmpeg, name, width, colours)
    except (av.FFmpegError, RuntimeError, MemoryError):
        is_same = False
    if not is_same:
        logger.info(
            "FFmpeg %s, called directly, draws %s of width %d, colour space %d, range %d "
            "differently from PyAV; such frames are drawn through PyAV, slower.",
            *(av.ffmpeg_version_info, name, width, *colours),
        )
    return is_same


def _draws_the_same(ffmpeg: Ffmpeg, name: str, width: int, colours: tuple[int, int]) -> bool:
    height = 2 * max(1, _PROOF_PIXELS // (2 * width))
    frame = av.VideoFrame(width, height, name)
    frame.colorspace, frame.color_range = colours
    noise = random.Random(0)
    for plane in frame.planes:
        plane.update(noise.randbytes(plane.buffer_size))
    wanted = convert(VideoReformatter(), frame, "rgb24").to_ndarray().transpose(2, 0, 1)
    reader = PlaneReader(ffmpeg, name, (width, height), colours)
    direct, through_memory = np.zeros((2, 3, height, width), np.uint8)
    decoded = FrameReader().read(frame, "noise")
    packed = PackedFrame(*allocate(width * height * 3 // 2), decoded.layout)
    reader.write(decoded, direct)
    reader.pack(decoded, packed)
    reader.write_packed([packed], through_memory)
    return np.array_equal(direct, wanted) and np.array_equal(through_memory, wanted)
