# SPDX-License-Identifier: Apache-2.0
"""Sensor noise: one tile per seed and size, shifted at random for every image."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.scene.chance import Stream, chance

REACH = 8  # no grain is stronger than this many levels
_SLACK = 64  # how many rows and columns the tile is larger than the image


def add_noise(
    image: npt.NDArray[np.float32], *, seed: int, level: float, place: tuple[int, ...]
) -> npt.NDArray[np.uint8]:
    """Return a planar image, as (height, width, 3) bytes, with the noise of its place.

    Args:
        image: Planar, (3, height, width); it is clipped in place.
        seed: Whose tile to use.
        level: The standard deviation of the brightness noise, in levels of 255.
        place: Integers that tell this image from every other: episode, frame, camera.
    """
    _, height, width = image.shape
    tile = _tile(seed, height, width, level)
    row, column = chance(Stream.NOISE_SHIFT, seed, *place).integers(_SLACK, size=2)
    grain = tile[row : row + height, column : column + width]
    # Within these bounds the sum cannot leave 0..255, so bytes are enough to add it.
    np.clip(image, REACH, 255 - REACH, out=image)
    pixels = np.empty((height, width, 3), np.uint8)
    for channel in range(3):
        np.copyto(pixels[..., channel], image[channel], casting="unsafe")
    pixels += grain
    pixels -= np.uint8(REACH)
    return pixels


@lru_cache(maxsize=2)
def _tile(seed: int, height: int, width: int, level: float) -> npt.NDArray[np.uint8]:
    """Return the noise tile of a seed, REACH meaning none; mostly grey, a little coloured."""
    rng = chance(Stream.NOISE, seed)
    shape = (height + _SLACK, width + _SLACK)
    grey = rng.normal(0.0, level, (*shape, 1))
    coloured = rng.normal(0.0, level / 3, (*shape, 3))
    grain = np.rint(grey + coloured) + REACH
    return np.asarray(grain.clip(0, 2 * REACH), np.uint8)
