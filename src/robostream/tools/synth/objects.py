# SPDX-License-Identifier: Apache-2.0
"""The objects on the table and the robot, as layers.

Objects are cubes, balls, and vessels (cups, bowls, plates). The robot's links and motors are rods
with round ends; its stand is two vessels.

A level circle is nearly an ellipse in the image. In coordinates that make this ellipse the unit
circle, the outline of a vessel, and of its shadow, is that of a rod from one circle to another.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robostream.tools.synth.arm import ArmPose, Floats, above
from robostream.tools.synth.camera import LIGHT, NEAREST_M, Camera, cast_down
from robostream.tools.synth.layers import (
    Box,
    Grid,
    Item,
    Layer,
    Plane,
    Rgb,
    Spot,
    blend,
    capsule,
    coverage,
    flat,
    quad,
    rod,
    rod_shadow,
    shadow_layer,
    sphere,
)
from robostream.tools.synth.script import Prop

_STRIPE_RGB = (224.0, 220.0, 210.0)


@dataclass(frozen=True, slots=True)
class Vessel:
    """A cone cut off at both ends, standing upright on `base`."""

    base: Floats  # (3,): the middle of its underside
    height_m: float
    foot_m: float  # radius below
    rim_m: float  # radius above
    rgb: Rgb
    inner_rgb: Rgb | None = None  # of what the rim encloses; None is solid, all of one colour
    band_rgb: Rgb | None = None  # around its middle
    opening: float = 0.97  # share of the rim's radius that is enclosed
    hollow: float = 0.0  # how much the light varies inside; 0 is flat


@dataclass(frozen=True, slots=True)
class VesselLayers:
    """A vessel as drawn."""

    whole: Layer
    near_wall: Layer  # to paint over the content
    depth_m: float


def draw_vessel(grid: Grid, camera: Camera, vessel: Vessel) -> VesselLayers | None:
    """Return the layers of a vessel, None if the camera does not see it."""
    rim = above(vessel.base, vessel.height_m)
    disc = _see_disc(grid, camera, rim, vessel.base, radius_m=vessel.rim_m, margin_px=1.0)
    return None if disc is None else _shade(vessel, disc)


def upright_shadow(
    grid: Grid, camera: Camera, ends: Floats, *, radius_m: float, blur_m: float
) -> Layer | None:
    """Return the shadow of an upright round object; `ends` are its foot and top on the table."""
    margin_px = camera.focal_px * blur_m / max(float(camera.project(ends[0])[2]), NEAREST_M)
    disc = _see_disc(grid, camera, ends[0], ends[1], radius_m=radius_m, margin_px=margin_px)
    if disc is None:
        return None
    inside = rod(disc.p, disc.q, disc.end, (1.0, disc.end_radius)).inside
    blur = max(blur_m / radius_m, 1 / disc.unit_px)
    return shadow_layer(disc.box, inside, blur=blur, darkness=0.36)


@dataclass(frozen=True, slots=True)
class _Disc:
    """Pixels in the coordinates of a level circle, its axes parallel to those of the table."""

    box: Box
    p: Plane
    q: Plane
    end: tuple[float, float]  # the centre of the other circle
    end_radius: float  # of the other circle if it is as large as the first
    unit_px: float
    depth_m: float


def _see_disc(
    grid: Grid, camera: Camera, centre: Floats, end: Floats, *, radius_m: float, margin_px: float
) -> _Disc | None:
    """Return the pixels around two level circles, None if the camera does not see them."""
    offsets = np.array([[0.0, 0.0, 0.0], [radius_m, 0.0, 0.0], [0.0, radius_m, 0.0], end - centre])
    here, east, north, there = camera.project(centre + offsets).tolist()
    if min(here[2], there[2]) < NEAREST_M:
        return None
    a, b = east[0] - here[0], east[1] - here[1]
    c, d = north[0] - here[0], north[1] - here[1]
    reach = max(abs(a) + abs(c), abs(b) + abs(d)) + margin_px
    box = grid.box([(at[0], at[1], reach) for at in (here, there)])
    area = a * d - b * c
    if box is None or abs(area) < 1e-3:
        return None
    x, y = grid.around(box, here[0], here[1])
    end_x, end_y = there[0] - here[0], there[1] - here[1]
    return _Disc(
        box=box,
        p=x * (d / area) - y * (c / area),
        q=y * (a / area) - x * (b / area),
        end=((d * end_x - c * end_y) / area, (a * end_y - b * end_x) / area),
        end_radius=here[2] / there[2],
        unit_px=abs(area) ** 0.5,
        depth_m=(here[2] + there[2]) / 2,
    )


def _shade(vessel: Vessel, disc: _Disc) -> VesselLayers:
    """Return the layers of a vessel from the coordinates of its pixels."""
    light_x, light_y = 0.6 * LIGHT[0], 0.6 * LIGHT[1]
    foot = disc.end_radius * vessel.foot_m / vessel.rim_m
    outline = rod(disc.p, disc.q, disc.end, (1.0, foot))
    from_centre = np.sqrt(disc.p * disc.p + disc.q * disc.q)
    enclosed = coverage((vessel.opening - from_centre) * disc.unit_px)
    rim = coverage((1.0 - from_centre) * disc.unit_px)
    # A rod ends where its thin end begins: the rim of a flat dish lies beyond that.
    alpha = np.maximum(coverage(outline.inside * disc.unit_px), rim)
    wall_light = outline.off_x * light_x + outline.off_y * light_y + 0.78
    inner_light = 0.9 - vessel.hollow * (disc.p * light_x + disc.q * light_y)
    in_band = (np.abs(outline.along - 0.5) < 0.16).astype(np.float32)
    paint = blend(flat(vessel.rgb), flat(vessel.band_rgb or vessel.rgb), in_band)
    wall = blend(paint * wall_light, flat(vessel.rgb) * 1.08, rim)
    whole = blend(wall, flat(vessel.inner_rgb or vessel.rgb) * inner_light, enclosed)
    return VesselLayers(
        whole=Layer(disc.box, alpha, whole, disc.depth_m),
        near_wall=Layer(disc.box, alpha * (1.0 - enclosed), wall, disc.depth_m),
        depth_m=disc.depth_m,
    )


class Placed(NamedTuple):
    """An object in one frame."""

    prop: Prop
    base: Floats  # (3,): the middle of its underside
    turn: float  # about the vertical


class _Shape(NamedTuple):
    """The proportions of a kind of vessel, as shares of the rim and of its colour."""

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


def object_items(grid: Grid, camera: Camera, placed: Placed) -> Iterator[Item]:
    """Yield the items of one object."""
    if placed.prop.kind == "cube":
        yield from _cube_items(grid, camera, placed)
    elif placed.prop.kind == "ball":
        yield from _ball_items(grid, camera, placed)
    else:
        yield from _vessel_items(grid, camera, placed)


def object_shadow(grid: Grid, camera: Camera, placed: Placed) -> Layer | None:
    """Return the shadow that an object casts on the table."""
    size = placed.prop.size
    ends = cast_down(np.stack([placed.base, above(placed.base, 0.7 * size.height_m)]))
    blur_m = 0.008 + 0.1 * float(placed.base[2])
    return upright_shadow(grid, camera, ends, radius_m=0.95 * size.radius_m, blur_m=blur_m)


@dataclass(frozen=True, slots=True)
class Livery:
    """The colours of the robot."""

    shell: Rgb
    motor: Rgb
    finger: Rgb


LIVERIES = (
    Livery((222, 222, 216), (58, 60, 66), (228, 122, 36)),
    Livery((226, 128, 40), (62, 62, 66), (48, 170, 190)),
    Livery((66, 110, 170), (206, 208, 210), (232, 196, 60)),
)


class Bone(NamedTuple):
    """A rod of the robot."""

    start: Floats
    end: Floats
    start_m: float  # radius
    end_m: float
    rgb: Rgb
    has_shadow: bool = True  # a motor's would lie within those of its links


def bones(pose: ArmPose, livery: Livery) -> list[Bone]:
    """Return the rods that make up the arm in one pose, from its base to its fingers."""
    side, approach, closing = pose.side, pose.approach, pose.closing
    waist = np.array([0.0, 0.0, 0.05])
    palm = pose.tip - 0.075 * approach
    spread = (pose.opening_m / 2 + 0.008) * closing
    wide = 0.036 * closing
    return [
        Bone(waist, pose.shoulder, 0.042, 0.040, livery.shell),
        _motor(pose.shoulder, 0.034 * side, 0.029, livery),
        Bone(pose.shoulder, pose.elbow, 0.029, 0.025, livery.shell),
        _motor(pose.elbow, 0.026 * side, 0.024, livery),
        Bone(pose.elbow, pose.wrist, 0.024, 0.019, livery.shell),
        _motor(pose.wrist, 0.021 * side, 0.018, livery),
        Bone(pose.wrist, palm, 0.019, 0.017, livery.shell),
        Bone(palm - wide, palm + wide, 0.015, 0.015, livery.motor),
        Bone(palm + spread, pose.tip + spread, 0.0095, 0.007, livery.finger),
        Bone(palm - spread, pose.tip - spread, 0.0095, 0.007, livery.finger),
    ]


def arm_items(grid: Grid, camera: Camera, parts: list[Bone]) -> Iterator[Item]:
    """Yield the items of the robot's rods that lie before the camera."""
    ends = camera.project(np.array([[bone.start, bone.end] for bone in parts]))
    for bone, (start, end) in zip(parts, ends.tolist(), strict=True):
        if min(start[2], end[2]) < NEAREST_M:
            continue
        layer = capsule(
            grid,
            Spot(start[0], start[1], camera.focal_px * bone.start_m / start[2], start[2]),
            Spot(end[0], end[1], camera.focal_px * bone.end_m / end[2], end[2]),
            bone.rgb,
        )
        if layer is not None:
            yield Item((start[2] + end[2]) / 2, layer)


def arm_shadows(grid: Grid, camera: Camera, parts: list[Bone]) -> Iterator[Layer]:
    """Yield the shadows the robot's rods cast on the table."""
    parts = [bone for bone in parts if bone.has_shadow]
    points = np.array([[bone.start, bone.end] for bone in parts])
    heights = points[..., 2].mean(1).tolist()
    on_table = camera.project(cast_down(points)).tolist()
    for bone, height, (start, end) in zip(parts, heights, on_table, strict=True):
        if min(start[2], end[2]) < NEAREST_M:
            continue
        scale = camera.focal_px * 2 / (start[2] + end[2])
        layer = rod_shadow(
            grid,
            Spot(start[0], start[1], scale * bone.start_m, start[2]),
            Spot(end[0], end[1], scale * bone.end_m, end[2]),
            blur_px=scale * (0.006 + 0.1 * max(height, 0.0)),
        )
        if layer is not None:
            yield layer


def stand_items(grid: Grid, camera: Camera, livery: Livery) -> Iterator[Item]:
    """Yield the stand that the arm turns on."""
    foot = Vessel(np.zeros(3), 0.018, 0.088, 0.084, livery.motor)
    neck = Vessel(np.zeros(3), 0.058, 0.062, 0.052, livery.shell)
    for behind_m, part in ((0.08, foot), (0.04, neck)):
        layers = draw_vessel(grid, camera, part)
        if layers is not None:
            yield Item(layers.depth_m + behind_m, layers.whole)


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
    """Yield a cup, bowl or plate; a bowl's near wall again, to cover its content."""
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
    # How far the near wall is in front of the centre: 0 for a camera that looks straight down.
    half_m = size.radius_m * math.hypot(camera.axes[2, 0], camera.axes[2, 1])
    yield Item(layers.depth_m + half_m, layers.whole)
    if placed.prop.kind == "bowl":
        yield Item(layers.depth_m - half_m, layers.near_wall)


def _scaled(rgb: Rgb, light: float) -> Rgb:
    return rgb[0] * light, rgb[1] * light, rgb[2] * light


def _paler(rgb: Rgb, share: float) -> Rgb:
    red, green, blue = (c + share * (230 - c) for c in rgb)
    return red, green, blue


def _motor(at: Floats, half: Floats, radius_m: float, livery: Livery) -> Bone:
    """Return a motor: a short thick rod along the joint's axis."""
    return Bone(at - half, at + half, radius_m, radius_m, livery.motor, has_shadow=False)
