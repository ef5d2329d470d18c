# SPDX-License-Identifier: Apache-2.0
"""8-bit YUV 4:2:0 frames in a batch, as they were decoded, to be drawn on the device they go to.

Each is a packed frame and a label: one byte that says how its colours are coded. It is half as long
as RGB, and takes no conversion.

The coefficients with which FFmpeg draws RGB are given here, so that others can draw the same: all
of its arithmetic is in integers, and follows from the luma weights of the standards.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robostream.decode.frames import (
    COLORSPACES,
    PLANAR_8BIT,
    FrameLayout,
    frame_layout,
    is_full_range,
)
from robostream.errors import VideoFileError

# Keeps frames aligned for vector instructions; the label is the first byte after the planes.
_LABEL_BYTES = 64
_FULL = 16
NUM_LABELS = 2 * _FULL

# Luma weights of red and blue by colour space; those not named are coded as BT.601.
_BT601 = (0.299, 0.114)
_WEIGHTS = {1: (0.2126, 0.0722), 4: (0.30, 0.11), 7: (0.212, 0.087), 9: (0.2627, 0.0593)}
# Coefficients are multiples of 1 / 2^13, for values times 8 that are then shifted by 16 bits.
_ONE = 1 << 13


class Drawing(NamedTuple):
    """How the values of one colour coding become RGB; see device/draw.py."""

    black: int
    y: int
    v_red: int
    u_green: int
    v_green: int
    u_blue: int


def yuv_bytes(width: int, height: int) -> int:
    """Return the bytes of a frame and its label. Pure."""
    return frame_layout("yuv420p", width, height, 0, 0).nbytes + _LABEL_BYTES


def label_of(layout: FrameLayout, size: tuple[int, int], file: str) -> int:
    """Return the label of frames of a layout.

    Raises VideoFileError if they have another (height, width), or cannot be drawn.
    """
    layout.check_slot((3, *size), np.uint8, file)
    if layout.kind not in PLANAR_8BIT:
        raise VideoFileError(
            f"{file}: the frames are not 8-bit 4:2:0, as those of this camera's first episode "
            "are, so they cannot be drawn on the device with them. Choose episodes of one format, "
            "or leave out `device` and copy batches to it."
        )
    if layout.colorspace not in COLORSPACES:
        raise VideoFileError(
            f"{file}: colour space {layout.colorspace} cannot be converted to RGB. Re-encode the "
            "file."
        )
    is_full = is_full_range(layout.kind, layout.color_range)
    return layout.colorspace | (_FULL if is_full else 0)


def label_place(frames: Any) -> Any:
    """Return the labels of frames, arrays or tensors, along the last axis."""
    return frames[..., -_LABEL_BYTES : 1 - _LABEL_BYTES]


def open_yuv(frames: Any, size: tuple[int, int]) -> tuple[Any, Any, Any]:
    """Return labels (count,), y (count, rows, columns), and u and v (count, 2, rows, columns).

    Of frames (count, bytes), arrays or tensors; copies nothing.
    """
    (height, width), count = size, len(frames)
    rows, columns = (height + 1) // 2, (width + 1) // 2
    luma, end = height * width, height * width + 2 * rows * columns
    y = frames[:, :luma].reshape(count, height, width)
    chroma = frames[:, luma:end].reshape(count, 2, rows, columns)
    return label_place(frames)[:, 0], y, chroma


def write_black_yuv(frames: Any, size: tuple[int, int]) -> None:
    """Write black frames along the last axis of an array."""
    height, width = size
    frames[...] = 128  # no colour
    frames[..., : height * width] = 0
    label_place(frames)[...] = _FULL | 1  # full range, in which 0 is black


def drawing_of(label: int) -> Drawing:
    """Return the coefficients with which FFmpeg draws frames of a label. Pure."""
    red, blue = _WEIGHTS.get(label % _FULL, _BT601)
    green = 1 - red - blue
    colours = (
        2 * (1 - red),
        -2 * (1 - blue) * blue / green,
        -2 * (1 - red) * red / green,
        2 * (1 - blue),
    )
    # FFmpeg begins with the numbers of limited range, in 16 bits, also for full range.
    limited = [round(colour * 255 / 224 * (1 << 16)) for colour in colours]
    if label >= _FULL:
        return Drawing(0, _ONE, *(_rounded(int(number * 224 / 255)) for number in limited))
    return Drawing(16 * 8, _rounded((1 << 16) * 255 // 219), *map(_rounded, limited))


def _rounded(number: int) -> int:
    """Return a number of 16 binary places, rounded to 13."""
    return (number * _ONE + (1 << 15)) >> 16
