# SPDX-License-Identifier: Apache-2.0
"""The things on the table as layers: framed cubes, striped balls, cups, bowls and plates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from robostream.tools.synth.scene.arm import Floats, above
from robostream.tools.synth.scene.layers import Grid, Item, Layer, Rgb, Spot, quad, sphere
from robostream.tools.synth.scene.optics import LIGHT, NEAREST_M, Camera, cast_down
from robostream.tools.synth.scene.props import Prop
from robostream.tools.synth.scene.vessel import Vessel, draw_vessel, upright_shadow

_STRIPE_RGB = (224.0, 220.0, 210.0)


class Placed(NamedTuple):
    """A thing in one frame."""

    prop: Prop
    base: Floats  # (3,): the middle of its underside
    turn: float  # about the vertical


class _Shape(NamedTuple):
    """What tells one kind of vessel from another, in shares of the rim and of its colour."""

    foot: float
    opening: float
    inner: float
    hollow: float
    band: float


_SHAPES = {
    "cup": _Shape(foot=0.76, opening=0.86, inner=0.62, hollow=1.0, band=0.45),
    "bowl": _Shape(foot=0.62, opening=0.90, inner=0.86, hollow=1.0, band=0.0),
    "plate": _Shape(foot=0.62, opening=0.72, inner=1.04, hollow=0.15, band=0.0),
}


def thing_items(grid: Grid, camera: Camera, placed: Placed) -> Iterator[Item]:
    """Yield the items of one thing."""
    if placed.prop.kind == "cube":
        yield from _cube_items(grid, camera, placed)
    elif placed.prop.kind == "ball":
        yield from _ball_items(grid, camera, placed)
    else:
        yield from _vessel_items(grid, camera, placed)


def thing_shadow(grid: Grid, camera: Camera, placed: Placed) -> Layer | None:
    """Return the shadow a thing casts on the table."""
    size = placed.prop.size
    ends = cast_down(np.stack([placed.base, above(placed.base, 0.7 * size.height_m)]))
    blur_m = 0.008 + 0.1 * float(placed.base[2])
    return upright_shadow(grid, camera, ends, radius_m=0.95 * size.radius_m, blur_m=blur_m)


def _cube_items(grid: Grid, camera: Camera, placed: Placed) -> Iterator[Item]:
    """Yield the faces of a cube that the camera sees."""
    half = placed.prop.size.radius_m
    cos, sin = math.cos(placed.turn), math.sin(placed.turn)
    axes = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    centre = above(placed.base, half)
    depth_m = float(camera.project(centre)[2])
    if depth_m < NEAREST_M + half:
        return
    for axis in range(3):
        towards = float(np.dot(camera.eye - centre, axes[axis]))
        if abs(towards) <= half:  # neither this face nor the one opposite is seen
            continue
        normal = math.copysign(1.0, towards) * axes[axis]
        across, along = half * axes[axis - 2], half * axes[axis - 1]
        corners = [across + along, across - along, -across - along, along - across]
        light = 0.58 + 0.46 * max(0.0, float(np.dot(normal, LIGHT)))
        face = camera.project(centre + half * normal + np.array(corners))
        inner = _scaled(placed.prop.rgb, light)
        layer = quad(grid, face, inner, _paler(inner, 0.3))
        if layer is not None:
            yield Item(depth_m, layer)


def _ball_items(grid: Grid, camera: Camera, placed: Placed) -> Iterator[Item]:
    """Yield a striped ball."""
    radius_m = placed.prop.size.radius_m
    column, row, depth_m = camera.project(above(placed.base, radius_m)).tolist()
    if depth_m < NEAREST_M + radius_m:
        return
    lean = np.array([math.cos(placed.turn), math.sin(placed.turn), 0.6]) / math.hypot(1, 0.6)
    spot = Spot(column, row, camera.focal_px * radius_m / depth_m, depth_m)
    layer = sphere(grid, spot, placed.prop.rgb, _STRIPE_RGB, (camera.axes @ lean).tolist())
    if layer is not None:
        yield Item(depth_m, layer)


def _vessel_items(grid: Grid, camera: Camera, placed: Placed) -> Iterator[Item]:
    """Yield a cup, bowl or plate, and over what is in a bowl its near wall again."""
    size, shape, rgb = placed.prop.size, _SHAPES[placed.prop.kind], placed.prop.rgb
    vessel = Vessel(
        base=placed.base,
        height_m=size.height_m,
        foot_m=shape.foot * size.radius_m,
        rim_m=size.radius_m,
        rgb=rgb,
        inner_rgb=_scaled(rgb, shape.inner),
        band_rgb=_paler(rgb, shape.band),
        opening=shape.opening,
        hollow=shape.hollow,
    )
    layers = draw_vessel(grid, camera, vessel)
    if layers is None:
        return
    # How far the near wall is before the middle: not at all for a camera that looks straight down.
    half_m = size.radius_m * math.hypot(camera.axes[2, 0], camera.axes[2, 1])
    yield Item(layers.depth_m + half_m, layers.whole)
    if placed.prop.kind == "bowl":
        yield Item(layers.depth_m - half_m, layers.near_wall)


def _scaled(rgb: Rgb, light: float) -> Rgb:
    """Return a colour under brighter or dimmer light."""
    return rgb[0] * light, rgb[1] * light, rgb[2] * light


def _paler(rgb: Rgb, share: float) -> Rgb:
    """Return a colour that is a share of the way to white."""
    red, green, blue = (c + share * (230 - c) for c in rgb)
    return red, green, blue
