# SPDX-License-Identifier: Apache-2.0
"""The robot and the objects on the table, with their shadows, as layers to paint.

Objects are cubes, balls, and vessels (cups, bowls, plates). The robot's links and motors are rods
with round ends; its stand is two vessels. A level circle is nearly an ellipse in the image. In
coordinates that make this ellipse the unit circle, the outline of a vessel, and of its shadow, is
that of a rod from one circle to another.

A layer covers a box of pixels, and only there its shape is computed, which keeps images cheap. The
box of a shape outside the image is empty. Images are planar, (3, height, width), because numpy is
several times faster on long rows, and float32 throughout: scalars are Python numbers, which keep
that type.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robostream.tools.synth.geometry import (
    LIGHT,
    NEAREST_M,
    ArmPose,
    Box,
    Camera,
    Floats,
    Plane,
    above,
    cast_down,
    flat,
)
from robostream.tools.synth.script import Prop, Track

Rgb = tuple[float, float, float]
Point = Sequence[float]  # column, row and depth in metres, as projected
_STRIPE_RGB = (224.0, 220.0, 210.0)
# The foot's share of the rim's radius, and how the kind is drawn.
_VESSELS: dict[str, tuple[float, dict[str, float]]] = {
    "cup": (0.76, {"opening": 0.86, "inner": 0.62, "hollow": 1.0, "band": 0.45}),
    "bowl": (0.62, {"opening": 0.90, "inner": 0.86, "hollow": 1.0}),
    "plate": (0.62, {"opening": 0.72, "inner": 1.04, "hollow": 0.15}),
}


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


class Layer(NamedTuple):
    """A shape ready to paint."""

    box: Box
    alpha: Plane  # (h, w), 0 to 1
    rgb: Plane  # (3, h, w) or (3, 1, 1)
    depth_m: Plane | float
    far_m: float  # layers are painted from the farthest to the nearest; infinite for shadows


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


def _motor(at: Floats, half: Floats, radius_m: float, livery: Livery) -> Bone:
    """Return a motor: a short thick rod along the joint's axis."""
    return Bone(at - half, at + half, radius_m, radius_m, livery.motor, has_shadow=False)


def draw_arm(camera: Camera, pose: ArmPose, livery: Livery) -> Iterator[Layer]:
    """Yield the robot's rods that lie before the camera, and their shadows on the table."""
    parts = bones(pose, livery)
    points = np.array([[bone.start, bone.end] for bone in parts])
    heights_m = points[..., 2].mean(1).tolist()
    seen, shadows = (camera.project(ends).tolist() for ends in (points, cast_down(points)))
    for bone, height_m, ends, shadow in zip(parts, heights_m, seen, shadows, strict=True):
        start_m, end_m = shadow[0][2], shadow[1][2]
        if bone.has_shadow and min(start_m, end_m) >= NEAREST_M:
            scale = camera.focal_px * 2 / (start_m + end_m)
            radii_px = scale * bone.start_m, scale * bone.end_m
            blur_px = scale * (0.006 + 0.1 * max(height_m, 0.0))
            box, found = _see_rod(camera, shadow, radii_px, margin_px=blur_px / 2 + 1)
            yield _shadow(box, found.inside, blur=max(blur_px, 1.0), darkness=0.26)
        start_m, end_m = ends[0][2], ends[1][2]
        if min(start_m, end_m) >= NEAREST_M:
            focal_px = camera.focal_px
            radii_px = focal_px * bone.start_m / start_m, focal_px * bone.end_m / end_m
            box, found = _see_rod(camera, ends, radii_px, margin_px=1)
            scale = 1.0 / np.maximum(found.radius, 0.3)
            colour = flat(bone.rgb) * _round_shade(camera, found.off_x * scale, found.off_y * scale)
            depth = found.along * (end_m - start_m) + start_m
            yield Layer(box, _coverage(found.inside), colour, depth, (start_m + end_m) / 2)


def draw_stand(camera: Camera, livery: Livery) -> Iterator[Layer]:
    """Yield the stand that the arm turns on."""
    foot = Vessel(np.zeros(3), 0.018, 0.088, 0.084, livery.motor)
    neck = Vessel(np.zeros(3), 0.058, 0.062, 0.052, livery.shell)
    yield from _draw_vessel(camera, foot, behind_m=0.08)
    yield from _draw_vessel(camera, neck, behind_m=0.04)


def draw_object(camera: Camera, track: Track, frame: int) -> Iterator[Layer]:
    """Yield an object in one frame of its track, and its shadow on the table."""
    prop, base, turn = track.prop, track.base[frame], float(track.turn[frame])
    ends = cast_down(np.stack([base, above(base, 0.7 * prop.size.height_m)]))
    blur_m, shadow_m = 0.008 + 0.1 * float(base[2]), 0.95 * prop.size.radius_m
    margin_px = camera.focal_px * blur_m / max(float(camera.project(ends[0])[2]), NEAREST_M)
    for disc in _see_discs(camera, ends, (shadow_m, shadow_m), margin_px=margin_px):
        blur = max(blur_m / shadow_m, 1 / disc.unit_px)
        yield _shadow(disc.box, disc.outline.inside, blur=blur, darkness=0.36)
    if prop.kind == "cube":
        yield from _draw_cube(camera, prop, base, turn)
    elif prop.kind == "ball":
        yield from _draw_ball(camera, prop, base, turn)
    else:
        radius_m, (foot, look) = prop.size.radius_m, _VESSELS[prop.kind]
        vessel = Vessel(base, prop.size.height_m, foot * radius_m, radius_m, prop.rgb, **look)
        # How far the near wall is in front of the centre: 0 for a camera that looks straight down.
        behind_m = radius_m * math.hypot(camera.axes[2, 0], camera.axes[2, 1])
        yield from _draw_vessel(camera, vessel, behind_m=behind_m, is_filled=prop.kind == "bowl")


def _draw_cube(camera: Camera, prop: Prop, base: Floats, turn: float) -> Iterator[Layer]:
    """Yield the faces of a cube that the camera sees, their edges in a paler colour."""
    half = prop.size.radius_m
    cos, sin = math.cos(turn), math.sin(turn)
    axes = np.array([[cos, sin, 0.0], [-sin, cos, 0.0], [0.0, 0.0, 1.0]])
    centre = above(base, half)
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
        face = camera.project(centre + half * normal + np.array(corners)).tolist()
        light = 0.58 + 0.46 * max(0.0, float(np.dot(normal, LIGHT)))
        rgb = light * np.array(prop.rgb)
        box = camera.box([(column, row, 1.5) for column, row, _ in face])
        inside, share = _see_face(camera, box, face)
        inner = np.clip((share - 0.3) * 12.0, 0.0, 1.0)
        colour = _blend(flat(_paler(rgb, 0.3)), flat(rgb), inner)
        # Half a pixel beyond the edge, so that no background shows between two faces.
        alpha = _coverage(inside + 0.5)
        yield Layer(box, alpha, colour, sum(point[2] for point in face) / 4, depth_m)


def _see_face(camera: Camera, box: Box, points: Sequence[Point]) -> tuple[Plane, Plane]:
    """Return how far pixels are inside a convex face, and the share of the way to its middle."""
    middle_x, middle_y = (sum(point[i] for point in points) / 4 for i in range(2))
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
    return inside, share


def _draw_ball(camera: Camera, prop: Prop, base: Floats, turn: float) -> Iterator[Layer]:
    """Yield a ball with a stripe around an axis that leans with its turn."""
    radius_m = prop.size.radius_m
    column, row, depth_m = camera.project(above(base, radius_m)).tolist()
    if depth_m < NEAREST_M + radius_m:
        return
    lean = np.array([math.cos(turn), math.sin(turn), 0.6]) / math.hypot(1, 0.6)
    right, down, ahead = (camera.axes @ lean).tolist()
    radius_px = camera.focal_px * radius_m / depth_m
    box = camera.box([(column, row, radius_px + 1)])
    radius = max(radius_px, 0.3)
    x, y = (offset / radius for offset in camera.around(box, column, row))
    square = x * x + y * y
    latitude = x * right + y * down - np.sqrt(np.maximum(1.0 - square, 0.0)) * ahead
    painted = _coverage((0.32 - np.abs(latitude)) * radius)
    colour = _blend(flat(prop.rgb), flat(_STRIPE_RGB), painted) * _round_shade(camera, x, y)
    yield Layer(box, _coverage((1.0 - np.sqrt(square)) * radius), colour, depth_m, depth_m)


class Vessel(NamedTuple):
    """A cone cut off at both ends, standing upright on `base`."""

    base: Floats  # (3,): the middle of its underside
    height_m: float
    foot_m: float  # radius below
    rim_m: float  # radius above
    rgb: Rgb
    opening: float = 0.97  # share of the rim's radius that is enclosed
    inner: float = 1.0  # brightness of what the rim encloses
    hollow: float = 0.0  # how much the light varies inside; 0 is flat
    band: float = 0.0  # how much paler a band around its middle is


def _draw_vessel(
    camera: Camera, vessel: Vessel, *, behind_m: float, is_filled: bool = False
) -> Iterator[Layer]:
    """Yield a vessel, `behind_m` farther than its centre; if filled, its near wall again.

    The near wall covers the content; it is as much nearer than the centre.
    """
    ends = np.stack([above(vessel.base, vessel.height_m), vessel.base])
    for disc in _see_discs(camera, ends, (vessel.rim_m, vessel.foot_m), margin_px=1.0):
        light_x, light_y = 0.6 * LIGHT[0], 0.6 * LIGHT[1]
        rgb, p, q, outline = np.array(vessel.rgb), disc.p, disc.q, disc.outline
        from_centre = np.sqrt(p * p + q * q)
        enclosed = _coverage((vessel.opening - from_centre) * disc.unit_px)
        rim = _coverage((1.0 - from_centre) * disc.unit_px)
        # A rod ends where its thin end begins: the rim of a flat dish lies beyond that.
        alpha = np.maximum(_coverage(outline.inside * disc.unit_px), rim)
        wall_light = outline.off_x * light_x + outline.off_y * light_y + 0.78
        inner_light = 0.9 - vessel.hollow * (p * light_x + q * light_y)
        in_band = (np.abs(outline.along - 0.5) < 0.16).astype(np.float32)
        paint = _blend(flat(rgb), flat(_paler(rgb, vessel.band)), in_band)
        wall = _blend(paint * wall_light, flat(rgb) * 1.08, rim)
        whole = _blend(wall, flat(vessel.inner * rgb) * inner_light, enclosed)
        yield Layer(disc.box, alpha, whole, disc.depth_m, disc.depth_m + behind_m)
        if is_filled:
            near = alpha * (1.0 - enclosed)
            yield Layer(disc.box, near, wall, disc.depth_m, disc.depth_m - behind_m)


class _Discs(NamedTuple):
    """Pixels in the coordinates of the first of two level circles, its axes those of the table."""

    box: Box
    p: Plane
    q: Plane
    outline: Rod  # from the first circle to the second
    unit_px: float
    depth_m: float


def _see_discs(
    camera: Camera, ends: Floats, radii_m: tuple[float, float], *, margin_px: float
) -> Iterator[_Discs]:
    """Yield the pixels around two level circles with these centres, if the camera sees them."""
    radius_m = radii_m[0]
    offsets = np.array(
        [[0.0, 0.0, 0.0], [radius_m, 0.0, 0.0], [0.0, radius_m, 0.0], ends[1] - ends[0]]
    )
    here, east, north, there = camera.project(ends[0] + offsets).tolist()
    if min(here[2], there[2]) < NEAREST_M:
        return
    a, b = east[0] - here[0], east[1] - here[1]
    c, d = north[0] - here[0], north[1] - here[1]
    reach = max(abs(a) + abs(c), abs(b) + abs(d)) + margin_px
    box = camera.box([(at[0], at[1], reach) for at in (here, there)])
    area = a * d - b * c
    if abs(area) < 1e-3:
        return
    x, y = camera.around(box, here[0], here[1])
    p, q = x * (d / area) - y * (c / area), y * (a / area) - x * (b / area)
    end_x, end_y = there[0] - here[0], there[1] - here[1]
    end = (d * end_x - c * end_y) / area, (a * end_y - b * end_x) / area
    outline = _rod(p, q, end, (1.0, here[2] / there[2] * radii_m[1] / radius_m))
    yield _Discs(box, p, q, outline, abs(area) ** 0.5, (here[2] + there[2]) / 2)


class Rod(NamedTuple):
    """The position of points relative to a rod with round ends that starts at the origin."""

    along: Plane  # nearest point of the axis, 0 to 1
    off_x: Plane  # from there to the point
    off_y: Plane
    radius: Plane  # there
    inside: Plane  # distance to the surface, negative outside


def _rod(x: Plane, y: Plane, end: tuple[float, float], radii: tuple[float, float]) -> Rod:
    """Return the position of points relative to a rod; x and y may broadcast."""
    square = max(end[0] ** 2 + end[1] ** 2, 1e-6)
    along = np.clip(x * (end[0] / square) + y * (end[1] / square), 0.0, 1.0)
    off_x, off_y = x - along * end[0], y - along * end[1]
    radius = along * (radii[1] - radii[0]) + radii[0]
    inside = radius - np.sqrt(off_x * off_x + off_y * off_y)
    return Rod(along, off_x, off_y, radius, inside)


def _see_rod(
    camera: Camera, ends: Sequence[Point], radii_px: tuple[float, float], *, margin_px: float
) -> tuple[Box, Rod]:
    """Return the pixels around a rod, and their position relative to it."""
    (column, row, _), (end_column, end_row, _) = ends
    spots = zip((column, end_column), (row, end_row), radii_px, strict=True)
    box = camera.box([(x, y, radius + margin_px) for x, y, radius in spots])
    x, y = camera.around(box, column, row)
    return box, _rod(x, y, (end_column - column, end_row - row), radii_px)


def _shadow(box: Box, inside: Plane, *, blur: float, darkness: float) -> Layer:
    """Return a shadow from the distance to its edge; `blur` is in the unit of the distance."""
    alpha = np.clip(inside * (darkness / blur) + darkness / 2, 0.0, darkness)
    return Layer(box, alpha, flat((0.0, 0.0, 0.0)), math.nan, math.inf)


def _coverage(inside_px: Plane) -> Plane:
    """Return how much of each pixel a shape covers, from the distance to its edge."""
    return np.asarray(np.clip(inside_px + 0.5, 0.0, 1.0))


def _blend(below: Plane, above: Plane, alpha: Plane) -> Plane:
    """Return `above` over `below`."""
    return np.asarray(below + alpha * (above - below))


def _round_shade(camera: Camera, x: Plane, y: Plane) -> Plane:
    """Return the brightness of a round surface whose normal leans by (x, y) in the image."""
    right, down, ahead = camera.light
    bulge = 1.0 - x * x - y * y  # approximates the normal's component towards the camera
    shade = x * (0.42 * right) + y * (0.42 * down) + bulge * (0.18 - 0.22 * min(ahead, 0.0)) + 0.66
    return np.clip(shade, 0.3, 1.15)


def _paler(rgb: Floats, share: float) -> Floats:
    return rgb + share * (230 - rgb)
