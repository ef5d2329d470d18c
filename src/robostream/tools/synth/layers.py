# SPDX-License-Identifier: Apache-2.0
"""Smooth-edged shapes as layers over a box of pixels, and how a layer is painted.

Shapes are computed only within the box they cover, which keeps images cheap. Images are planar,
(3, height, width), because numpy is several times faster on long rows, and float32 throughout:
scalars are Python numbers, which keep that type.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Plane = npt.NDArray[np.floating[Any]]
Rgb = tuple[float, float, float]
Box = tuple[slice, slice]  # rows and columns


class Spot(NamedTuple):
    """A round spot in the image."""

    column: float
    row: float
    radius_px: float
    depth_m: float


@dataclass(frozen=True, slots=True)
class Grid:
    """The pixel centres of an image, and the direction to the light as the camera sees it."""

    columns: Plane  # (1, width)
    rows: Plane  # (height, 1)
    light: tuple[float, float, float]  # right, down, ahead

    def box(self, spots: Sequence[tuple[float, float, float]]) -> Box | None:
        """Return the box that covers (column, row, margin) spots, None if outside the image."""
        left = max(0, math.floor(min(c - m for c, _, m in spots)))
        right = min(self.columns.shape[1], math.ceil(max(c + m for c, _, m in spots)))
        top = max(0, math.floor(min(r - m for _, r, m in spots)))
        bottom = min(self.rows.shape[0], math.ceil(max(r + m for _, r, m in spots)))
        return None if left >= right or top >= bottom else (slice(top, bottom), slice(left, right))

    def around(self, box: Box, column: float, row: float) -> tuple[Plane, Plane]:
        """Return the pixels of a box as offsets from a point, (1, w) and (h, 1)."""
        return self.columns[:, box[1]] - column, self.rows[box[0]] - row


@dataclass(frozen=True, slots=True)
class Layer:
    """A shape ready to paint."""

    box: Box
    alpha: Plane  # (h, w), 0 to 1
    rgb: Plane  # (3, h, w) or (3, 1, 1)
    depth_m: Plane | float


class Item(NamedTuple):
    """A layer and its distance from the camera; the farthest is painted first."""

    depth_m: float
    layer: Layer


def make_grid(width: int, height: int, light: tuple[float, float, float]) -> Grid:
    """Return the grid of an image."""
    columns = np.arange(width, dtype=np.float32)[None] + 0.5
    return Grid(columns, np.arange(height, dtype=np.float32)[:, None] + 0.5, light)


def paint(image: Plane, layer: Layer) -> None:
    """Blend a layer into a planar image of shape (3, height, width)."""
    region = image[:, layer.box[0], layer.box[1]]
    region += layer.alpha * (layer.rgb - region)


def paint_depth(image: Plane, layer: Layer) -> None:
    """Write the depth of a layer into an image where it covers at least half a pixel."""
    np.copyto(image[layer.box], layer.depth_m, where=layer.alpha >= 0.5)


def capsule(grid: Grid, start: Spot, end: Spot, rgb: Rgb) -> Layer | None:
    """Return a rod with round ends, thick as its end spots, shaded as a cylinder."""
    box = grid.box([(s.column, s.row, s.radius_px + 1) for s in (start, end)])
    if box is None:
        return None
    found = _rod_between(grid, box, start, end)
    scale = 1.0 / np.maximum(found.radius, 0.3)
    shade = _round_shade(grid, found.off_x * scale, found.off_y * scale)
    depth = found.along * (end.depth_m - start.depth_m) + start.depth_m
    return Layer(box, coverage(found.inside), flat(rgb) * shade, depth)


def rod_shadow(grid: Grid, start: Spot, end: Spot, *, blur_px: float) -> Layer | None:
    """Return the shadow of a rod, its edge blurred over `blur_px`."""
    box = grid.box([(s.column, s.row, s.radius_px + blur_px / 2 + 1) for s in (start, end)])
    if box is None:
        return None
    inside = _rod_between(grid, box, start, end).inside
    return shadow_layer(box, inside, blur=max(blur_px, 1.0), darkness=0.26)


def shadow_layer(box: Box, inside: Plane, *, blur: float, darkness: float) -> Layer:
    """Return a shadow from the distance to its edge; `blur` is in the unit of the distance."""
    alpha = np.clip(inside * (darkness / blur) + darkness / 2, 0.0, darkness)
    return Layer(box, alpha, flat((0.0, 0.0, 0.0)), math.nan)


def sphere(grid: Grid, spot: Spot, rgb: Rgb, stripe: Rgb, axis: Sequence[float]) -> Layer | None:
    """Return a ball with a stripe around an axis, which is given as the camera sees it."""
    box = grid.box([(spot.column, spot.row, spot.radius_px + 1)])
    if box is None:
        return None
    radius = max(spot.radius_px, 0.3)
    x, y = (offset / radius for offset in grid.around(box, spot.column, spot.row))
    square = x * x + y * y
    ahead = np.sqrt(np.maximum(1.0 - square, 0.0))
    latitude = x * axis[0] + y * axis[1] - ahead * axis[2]
    painted = coverage((0.32 - np.abs(latitude)) * radius)
    colour = blend(flat(rgb), flat(stripe), painted) * _round_shade(grid, x, y)
    return Layer(box, coverage((1.0 - np.sqrt(square)) * radius), colour, spot.depth_m)


def quad(grid: Grid, corners: npt.NDArray[np.float64], rgb: Rgb, frame: Rgb) -> Layer | None:
    """Return a flat convex face with a frame along its edges; corners are (4, 3) as projected."""
    points: list[list[float]] = corners.tolist()
    box = grid.box([(column, row, 1.5) for column, row, _ in points])
    if box is None:
        return None
    middle_x, middle_y = (sum(p[i] for p in points) / 4 for i in range(2))
    x, y = grid.around(box, middle_x, middle_y)
    inside = share = np.full((1, 1), np.inf, np.float32)
    for (ax, ay, _), (bx, by, _) in zip(points, points[1:] + points[:1], strict=True):
        length = max(math.hypot(bx - ax, by - ay), 1e-3)
        across, down = (by - ay) / length, (ax - bx) / length
        reach = (middle_x - ax) * across + (middle_y - ay) * down  # of the middle from the edge
        if reach < 0:
            across, down, reach = -across, -down, -reach
        distance = x * across + y * down + reach
        inside = np.minimum(inside, distance)
        share = np.minimum(share, distance / max(reach, 0.3))
    # Half a pixel beyond the edge, so that no background shows between two faces.
    alpha = coverage(inside + 0.5)
    inner = np.clip((share - 0.3) * 12.0, 0.0, 1.0)
    depth = sum(p[2] for p in points) / 4
    return Layer(box, alpha, blend(flat(frame), flat(rgb), inner), depth)


class Rod(NamedTuple):
    """The position of points relative to a rod with round ends that starts at the origin."""

    along: Plane  # nearest point of the axis, 0 to 1
    off_x: Plane  # from there to the point
    off_y: Plane
    radius: Plane  # there
    inside: Plane  # distance to the surface, negative outside


def rod(x: Plane, y: Plane, end: tuple[float, float], radii: tuple[float, float]) -> Rod:
    """Return the position of points relative to a rod; x and y may broadcast."""
    square = max(end[0] ** 2 + end[1] ** 2, 1e-6)
    along = x * (end[0] / square) + y * (end[1] / square)
    np.clip(along, 0.0, 1.0, out=along)
    off_x = x - along * end[0]
    off_y = y - along * end[1]
    radius = along * (radii[1] - radii[0])
    radius += radii[0]
    inside = off_x * off_x
    inside += off_y * off_y
    np.sqrt(inside, out=inside)
    np.subtract(radius, inside, out=inside)
    return Rod(along, off_x, off_y, radius, inside)


def _rod_between(grid: Grid, box: Box, start: Spot, end: Spot) -> Rod:
    """Return the position of a box's pixels relative to the rod between two spots."""
    x, y = grid.around(box, start.column, start.row)
    reach = (end.column - start.column, end.row - start.row)
    return rod(x, y, reach, (start.radius_px, end.radius_px))


def coverage(inside_px: Plane) -> Plane:
    """Return how much of each pixel a shape covers, from the distance to its edge."""
    return np.asarray(np.clip(inside_px + 0.5, 0.0, 1.0))


def flat(rgb: Rgb) -> Plane:
    """Return a colour that broadcasts over a planar image."""
    return np.array(rgb, np.float32)[:, None, None]


def blend(below: Plane, above: Plane, alpha: Plane) -> Plane:
    """Return `above` over `below`."""
    return np.asarray(below + alpha * (above - below))


def _round_shade(grid: Grid, x: Plane, y: Plane) -> Plane:
    """Return the brightness of a round surface whose normal leans by (x, y) in the image."""
    right, down, ahead = grid.light
    bulge = 1.0 - x * x - y * y  # approximates the normal's component towards the camera
    shade = x * (0.42 * right) + y * (0.42 * down)
    shade += bulge * (0.18 - 0.22 * min(ahead, 0.0))
    shade += 0.66
    return np.clip(shade, 0.3, 1.15, out=shade)
