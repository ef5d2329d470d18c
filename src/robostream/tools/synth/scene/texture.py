# SPDX-License-Identifier: Apache-2.0
"""What the room of a seed is made of: the table top as a texture, the colours of the walls."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.scene.arm import Floats
from robostream.tools.synth.scene.chance import Stream, chance
from robostream.tools.synth.scene.layers import Plane, flat

TEXELS = 1024
MAP_M = 1.12  # the side of the square the texture covers: the table and some floor around it
MAP_X0_M, MAP_Y0_M = -0.30, -0.56
TABLE_X_M, TABLE_Y_M = (-0.17, 0.62), (-0.50, 0.50)
CLOTH_X_M, CLOTH_Y_M = (0.12, 0.46), (-0.38, 0.38)
CHECK_M, PLANK_M, GAP_M = 0.0425, 0.13, 0.0016
FLOOR_RGB = (112.0, 108.0, 104.0)
LEVELS = 4
_WOODS = ((176, 132, 88), (150, 104, 66), (196, 158, 116), (128, 92, 66))
_CLOTHS = ((86, 104, 124), (124, 74, 70), (88, 112, 88), (150, 142, 128))
_WALLS = ((182, 186, 188), (190, 180, 162), (160, 174, 182), (172, 182, 166))

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """What the room of one seed is made of."""

    table: tuple[Words, ...]  # packed texels [x, y]; each level has half the rows of the one before
    wall_rgb: Floats  # (3,)
    poster_rgb: Floats  # (3,)


@lru_cache(maxsize=2)
def make_room(seed: int) -> Room:
    """Return the room of a seed. Pure; the last rooms are kept."""
    rng = chance(Stream.ROOM, seed)
    image = _table_top(rng)
    levels = [pack(image)]
    for _ in range(1, LEVELS):
        side = image.shape[1] // 2
        image = image.reshape(3, side, 2, side, 2).mean((2, 4))
        levels.append(pack(image))
    return Room(tuple(levels), np.array(_pick(rng, _WALLS)), rng.uniform(90, 160, 3))


def within(values: Plane, span: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """Return where values lie in a span."""
    return (values >= span[0]) & (values <= span[1])


def pack(image: Plane) -> Words:
    """Return a planar image as one 32-bit word per pixel, which one look-up fetches whole."""
    red, green, blue = np.rint(image).astype(np.uint32)
    return np.asarray(red | green << np.uint32(8) | blue << np.uint32(16))


def unpack(words: Words) -> Plane:
    """Return packed pixels as a planar image."""
    image = np.empty((3, *words.shape), np.float32)
    for channel in range(3):
        image[channel] = (words >> np.uint32(8 * channel)) & np.uint32(255)
    return image


def _table_top(rng: np.random.Generator) -> Plane:
    """Return the table, with a checked cloth on it, and the floor around it."""
    place = (np.arange(TEXELS, dtype=np.float32) + 0.5) * (MAP_M / TEXELS)
    x, y = place[:, None] + MAP_X0_M, place[None] + MAP_Y0_M
    image = np.empty((3, TEXELS, TEXELS), np.float32)
    image[:] = flat(FLOOR_RGB) * 0.85
    on_table = within(x, TABLE_X_M) & within(y, TABLE_Y_M)
    np.copyto(image, flat(_pick(rng, _WOODS)) * _grain(rng, x), where=on_table)
    checks = (np.floor(x / CHECK_M) + np.floor(y / CHECK_M)) % 2
    weave = 0.92 + 0.10 * checks + 0.025 * _smooth_noise(rng, 200, 200)
    on_cloth = within(x, CLOTH_X_M) & within(y, CLOTH_Y_M)
    np.copyto(image, flat(_pick(rng, _CLOTHS)) * weave, where=on_cloth)
    image *= 1.06 - 0.5 * ((x - 0.25) ** 2 + y**2)  # the lamp hangs over the middle
    return np.clip(image, 12, 243)


def _grain(rng: np.random.Generator, x: Plane) -> Plane:
    """Return the brightness of planks that run along y."""
    plank = np.floor(x / PLANK_M).astype(int)
    tones = rng.uniform(0.9, 1.08, np.ptp(plank) + 1).astype(np.float32)
    fibres = 0.04 * _smooth_noise(rng, 256, 6) + 0.05 * _smooth_noise(rng, 40, 5)
    gap = np.abs(x - PLANK_M * np.rint(x / PLANK_M)) < GAP_M
    return np.asarray((tones[plank - plank.min()] + fibres) * np.where(gap, 0.6, 1.0))


def _smooth_noise(rng: np.random.Generator, rows: int, columns: int) -> Plane:
    """Return a texture-sized field from -1 to 1, linear between rows x columns random knots."""
    knots = rng.uniform(-1, 1, (rows, columns)).astype(np.float32)
    return _stretch(_stretch(knots).T).T


def _stretch(knots: Plane) -> Plane:
    """Return the rows interpolated linearly to as many as the texture has."""
    place = np.linspace(0, len(knots) - 1, TEXELS)
    low = np.minimum(place.astype(int), len(knots) - 2)
    part = (place - low).astype(np.float32)[:, None]
    return np.asarray(knots[low] + part * (knots[low + 1] - knots[low]))


def _pick(
    rng: np.random.Generator, colours: tuple[tuple[int, int, int], ...]
) -> tuple[int, int, int]:
    """Return one of some colours."""
    return colours[rng.integers(len(colours))]
