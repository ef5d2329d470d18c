# SPDX-License-Identifier: Apache-2.0
"""How a kept frame lies in its bytes."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

import numpy as np

PLANAR_8BIT = ("yuv420p", "yuvj420p")
_DEPTH_TYPES = (np.dtype(np.uint16),)
_COLOUR_TYPES = (np.dtype(np.uint8), np.dtype(np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class FrameLayout:
    """How a kept frame lies in its bytes: as decoded (4:2:0), or as the finished picture.

    `shape` and `dtypes` are those of the arrays that it can be drawn into. Equal layouts are one
    object (see `kept_layout`), so that comparing them and looking them up is fast.
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


@functools.cache
def kept_layout(
    kind: str, width: int, height: int, colorspace: int, color_range: int
) -> FrameLayout:
    """Return the one layout with these properties."""
    return FrameLayout(kind, width, height, colorspace, color_range)
