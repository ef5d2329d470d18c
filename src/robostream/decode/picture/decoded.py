# SPDX-License-Identifier: Apache-2.0
"""A decoded picture, whatever decoded it: all that is known of it from here on."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.decode.picture.buffer_pool import SlotMemory
from robostream.decode.picture.layout import FrameLayout

CPU = "cpu"


class Plane(NamedTuple):
    """Rows of one plane, one after the other with padding.

    Attributes:
        memory: What holds them: a buffer of whole rows, alive as long as this is.
        address: Where the first row begins.
        line_bytes: From the begin of a row to the next.
    """

    memory: Any
    address: int
    line_bytes: int


class DecodedFrame(NamedTuple):
    """Planes of a picture that stay valid as long as it is held.

    Attributes:
        layout: What the planes are, and how the picture is kept: 8-bit 4:2:0, RGB, or depth codes.
        planes: As `layout.plane_sizes` lists them. On a GPU it is one: all of them one after the
            other, as they are kept.
        device: Whose memory they lie in.
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


def picture_of_arrays(layout: FrameLayout, arrays: Iterable[npt.NDArray[Any]]) -> DecodedFrame:
    """Return a picture whose planes are arrays (height, width), each contiguous."""
    planes = tuple(Plane(a, a.ctypes.data, a.strides[0]) for a in arrays)
    return DecodedFrame(layout, planes)


def kept_picture(layout: FrameLayout, slot: SlotMemory) -> DecodedFrame:
    """Return the picture that is kept in a slot: its planes one after the other."""
    planes, at = [], 0
    for width, height in layout.plane_sizes:
        end = at + width * height
        planes.append(Plane(slot.content[at:end], slot.address + at, width))
        at = end
    return DecodedFrame(layout, tuple(planes))
