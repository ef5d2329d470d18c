# SPDX-License-Identifier: Apache-2.0
"""PyAV's frames as pictures of ours: three kinds of planes, whatever format a decoder gives."""

from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt
from av.video.plane import VideoPlane
from av.video.reformatter import VideoReformatter

from robostream.decode.picture.conversion import convert
from robostream.decode.picture.decoded import DecodedFrame, Plane, picture_of_arrays
from robostream.decode.picture.layout import PLANAR_8BIT, FrameLayout, kept_layout
from robostream.errors import VideoFileError

_GRAY_16BIT = ("gray12le", "gray10le", "gray16le")

# By format, size and colour tags: the layout of every decoded picture is looked up here.
_layouts: dict[tuple[str, int, int, int, int], FrameLayout] = {}


class FrameReader:
    """Takes the planes out of frames. For one thread.

    8-bit 4:2:0 and depth are taken as they are, without a copy. All else becomes RGB here, so that
    nobody after this has to know a format.
    """

    def __init__(self) -> None:
        self._reformatter = VideoReformatter()

    def read(self, frame: av.VideoFrame, *, file: str) -> DecodedFrame:
        """Return a frame's picture; colours that FFmpeg cannot convert are a VideoFileError."""
        layout = _layout_of(frame)
        if layout.kind == "rgb":
            return picture_of_arrays(layout, self._colours(frame, file))
        return DecodedFrame(layout, tuple(map(plane_of, frame.planes)))

    def _colours(self, frame: av.VideoFrame, file: str) -> npt.NDArray[np.uint8]:
        (plane,) = to_format(self._reformatter, frame, "rgb24", file).planes
        rows = np.frombuffer(memoryview(plane), np.uint8).reshape(frame.height, -1)
        pixels = rows[:, : 3 * frame.width].reshape(frame.height, frame.width, 3)
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def plane_of(plane: VideoPlane) -> Plane:
    """Return a plane of FFmpeg's, which lives on with it."""
    return Plane(plane, plane.buffer_ptr, plane.line_size)


def to_format(
    reformatter: VideoReformatter, frame: av.VideoFrame, name: str, file: str
) -> av.VideoFrame:
    """Return a frame in another format, or raise VideoFileError."""
    try:
        return convert(reformatter, frame, name)
    except av.FFmpegError as error:
        raise VideoFileError(
            f"{file}: FFmpeg cannot turn {frame.format.name} of colour space "
            f"{frame.colorspace} into RGB ({error.strerror}). Re-encode the file."
        ) from error


def _layout_of(frame: av.VideoFrame) -> FrameLayout:
    key = (frame.format.name, frame.width, frame.height, frame.colorspace, frame.color_range)
    layout = _layouts.get(key)
    if layout is None:
        layout = _layouts[key] = _layout(*key)
    return layout


def _layout(name: str, width: int, height: int, colorspace: int, color_range: int) -> FrameLayout:
    if name in PLANAR_8BIT and height % 2 == 0:
        # 4:2:0 takes half the bytes of RGB, and converting it takes no longer than copying RGB.
        return kept_layout(name, width, height, colorspace, color_range)
    return kept_layout("depth" if name in _GRAY_16BIT else "rgb", width, height, 0, 0)
