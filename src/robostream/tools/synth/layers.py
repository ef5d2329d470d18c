# SPDX-License-Identifier: Apache-2.0
"""Smooth-edged shapes as layers over a box of pixels, and how layers are painted.

Shapes are computed only within the box they cover, which keeps images cheap. Images are planar,
(3, height, width), because numpy is several times faster on long rows, and float32 throughout:
scalars are Python numbers, which keep that type. A shape outside the image yields no layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.camera import Box, Camera, Plane

Point = Sequence[float]  # column, row and depth in metres, as projected


class Layer(NamedTuple):
    """A shape ready to paint."""

    box: Box
    alpha: Plane  # (h, w), 0 to 1
    rgb: Plane  # (3, h, w) or (3, 1, 1)
    depth_m: Plane | float
    far_m: float  # layers are painted from the farthest to the nearest; infinite for shadows


def in_order(layers: Iterable[Layer]) -> list[Layer]:
    """Return layers in painting order."""
    return sorted(layers, key=lambda layer: -layer.far_m)


def paint(image: Plane, layer: Layer) -> None:
    """Blend a layer into a planar image of shape (3, height, width)."""
    region = image[:, layer.box[0], layer.box[1]]
    region += layer.alpha * (layer.rgb - region)


def paint_depth(image: Plane, layer: Layer) -> None:
    """Write the depth of a layer into an image where it covers at least half a pixel."""
    np.copyto(image[layer.box], layer.depth_m, where=layer.alpha >= 0.5)


def capsule(
    camera: Camera, ends: Sequence[Point], radii_px: tuple[float, float], rgb: npt.ArrayLike
) -> Iterator[Layer]:
    """Yield a rod with round ends, shaded as a cylinder."""
    for box, found in _rod_between(camera, ends, radii_px, margin_px=1):
        scale = 1.0 / np.maximum(found.radius, 0.3)
        shade = _round_shade(camera, found.off_x * scale, found.off_y * scale)
        start_m, end_m = ends[0][2], ends[1][2]
        depth = found.along * (end_m - start_m) + start_m
        colour = flat(rgb) * shade
        yield Layer(box, coverage(found.inside), colour, depth, (start_m + end_m) / 2)


def rod_shadow(
    camera: Camera, ends: Sequence[Point], radii_px: tuple[float, float], *, blur_px: float
) -> Iterator[Layer]:
    """Yield the shadow of a rod, its edge blurred over `blur_px`."""
    for box, found in _rod_between(camera, ends, radii_px, margin_px=blur_px / 2 + 1):
        yield shadow_layer(box, found.inside, blur=max(blur_px, 1.0), darkness=0.26)


def shadow_layer(box: Box, inside: Plane, *, blur: float, darkness: float) -> Layer:
    """Return a shadow from the distance to its edge; `blur` is in the unit of the distance."""
    alpha = np.clip(inside * (darkness / blur) + darkness / 2, 0.0, darkness)
    return Layer(box, alpha, flat((0.0, 0.0, 0.0)), math.nan, math.inf)


def sphere(
    camera: Camera, centre: Point, radius_px: float, rgbs: Sequence[npt.ArrayLike], axis: Point
) -> Iterator[Layer]:
    """Yield a ball with a stripe, the second colour, around an axis as the camera sees it."""
    column, row, depth_m = centre
    box = camera.box([(column, row, radius_px + 1)])
    if box is None:
        return
    radius = max(radius_px, 0.3)
    x, y = (offset / radius for offset in camera.around(box, column, row))
    square = x * x + y * y
    ahead = np.sqrt(np.maximum(1.0 - square, 0.0))
    latitude = x * axis[0] + y * axis[1] - ahead * axis[2]
    painted = coverage((0.32 - np.abs(latitude)) * radius)
    colour = blend(flat(rgbs[0]), flat(rgbs[1]), painted) * _round_shade(camera, x, y)
    yield Layer(box, coverage((1.0 - np.sqrt(square)) * radius), colour, depth_m, depth_m)


def quad(
    camera: Camera, points: Sequence[Point], rgbs: Sequence[npt.ArrayLike], far_m: float
) -> Iterator[Layer]:
    """Yield a flat convex face of four corners, its edges framed in the second colour."""
    box = camera.box([(column, row, 1.5) for column, row, _ in points])
    if box is None:
        return
    middle_x, middle_y, depth = (sum(p[i] for p in points) / 4 for i in range(3))
    x, y = camera.around(box, middle_x, middle_y)
    inside = share = np.full((1, 1), np.inf, np.float32)
    for (ax, ay, _), (bx, by, _) in zip(points, [*points[1:], points[0]], strict=True):
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
    yield Layer(box, alpha, blend(flat(rgbs[1]), flat(rgbs[0]), inner), depth, far_m)


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
    along = np.clip(x * (end[0] / square) + y * (end[1] / square), 0.0, 1.0)
    off_x, off_y = x - along * end[0], y - along * end[1]
    radius = along * (radii[1] - radii[0]) + radii[0]
    inside = radius - np.sqrt(off_x * off_x + off_y * off_y)
    return Rod(along, off_x, off_y, radius, inside)


def _rod_between(
    camera: Camera, ends: Sequence[Point], radii_px: tuple[float, float], *, margin_px: float
) -> Iterator[tuple[Box, Rod]]:
    """Yield the pixels around a rod and their position relative to it, if the image has any."""
    (column, row, _), (end_column, end_row, _) = ends
    spots = zip((column, end_column), (row, end_row), radii_px, strict=True)
    box = camera.box([(x, y, radius + margin_px) for x, y, radius in spots])
    if box is not None:
        x, y = camera.around(box, column, row)
        yield box, rod(x, y, (end_column - column, end_row - row), radii_px)


def coverage(inside_px: Plane) -> Plane:
    """Return how much of each pixel a shape covers, from the distance to its edge."""
    return np.asarray(np.clip(inside_px + 0.5, 0.0, 1.0))


def flat(rgb: npt.ArrayLike) -> Plane:
    """Return a colour that broadcasts over a planar image."""
    return np.array(rgb, np.float32)[:, None, None]


def blend(below: Plane, above: Plane, alpha: Plane) -> Plane:
    """Return `above` over `below`."""
    return np.asarray(below + alpha * (above - below))


def _round_shade(camera: Camera, x: Plane, y: Plane) -> Plane:
    """Return the brightness of a round surface whose normal leans by (x, y) in the image."""
    right, down, ahead = camera.light
    bulge = 1.0 - x * x - y * y  # approximates the normal's component towards the camera
    shade = x * (0.42 * right) + y * (0.42 * down) + bulge * (0.18 - 0.22 * min(ahead, 0.0)) + 0.66
    return np.clip(shade, 0.3, 1.15)
