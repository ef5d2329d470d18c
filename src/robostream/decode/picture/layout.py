# SPDX-License-Identifier: Apache-2.0
"""How a kept frame lies in its bytes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import av
import numpy as np

PLANAR_8BIT = ("yuv420p", "yuvj420p")
_GRAY_16BIT = ("gray12le", "gray10le", "gray16le")
_DEPTH_TYPES = (np.dtype(np.uint16),)
_COLOUR_TYPES = (np.dtype(np.uint8), np.dtype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class PictureLayout:
    """How a kept frame lies in its bytes: as decoded (4:2:0), or as the finished picture.

    `shape` and `dtypes` are those of the arrays that it can be drawn into. Equal layouts are one
    object (see `layout_of`), so that comparing them and looking them up is fast.
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


def layout_of(frame: av.VideoFrame) -> PictureLayout:
    """Return how a decoded frame is kept."""
    key = (frame.format.name, frame.width, frame.height, frame.colorspace, frame.color_range)
    layout = _LAYOUTS_BY_FORMAT.get(key)
    if layout is None:
        layout = _LAYOUTS_BY_FORMAT[key] = _layout(*key)
    return layout


@functools.cache
def kept_layout(
    kind: str, width: int, height: int, colorspace: int, color_range: int
) -> PictureLayout:
    """Return the one layout with these properties."""
    return PictureLayout(kind, width, height, colorspace, color_range)


def _layout(name: str, width: int, height: int, colorspace: int, color_range: int) -> PictureLayout:
    if name in PLANAR_8BIT and height % 2 == 0:
        # 4:2:0 takes half the bytes of RGB, and converting it takes no longer than copying RGB.
        return kept_layout(name, width, height, colorspace, color_range)
    return kept_layout("depth" if name in _GRAY_16BIT else "rgb", width, height, 0, 0)


# By format, size and colour tags: the layout of every decoded picture is looked up here.
_LAYOUTS_BY_FORMAT: dict[tuple[str, int, int, int, int], PictureLayout] = {}
