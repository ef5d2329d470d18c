# SPDX-License-Identifier: Apache-2.0
"""The objects on the table and the robot, with their shadows, as layers.

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
from robostream.tools.synth.camera import LIGHT, NEAREST_M, Box, Camera, Plane, cast_down
from robostream.tools.synth.layers import (
    Layer,
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
from robostream.tools.synth.script import Prop, Track

Rgb = tuple[float, float, float]
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
            yield from rod_shadow(camera, shadow, radii_px, blur_px=blur_px)
        start_m, end_m = ends[0][2], ends[1][2]
        if min(start_m, end_m) >= NEAREST_M:
            focal_px = camera.focal_px
            radii_px = focal_px * bone.start_m / start_m, focal_px * bone.end_m / end_m
            yield from capsule(camera, ends, radii_px, bone.rgb)


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
    blur_m = 0.008 + 0.1 * float(base[2])
    yield from _upright_shadow(camera, ends, radius_m=0.95 * prop.size.radius_m, blur_m=blur_m)
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
    """Yield the faces of a cube that the camera sees."""
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
        face = camera.project(centre + half * normal + np.array(corners))
        light = 0.58 + 0.46 * max(0.0, float(np.dot(normal, LIGHT)))
        rgb = light * np.array(prop.rgb)
        yield from quad(camera, face.tolist(), (rgb, _paler(rgb, 0.3)), depth_m)


def _draw_ball(camera: Camera, prop: Prop, base: Floats, turn: float) -> Iterator[Layer]:
    radius_m = prop.size.radius_m
    centre = camera.project(above(base, radius_m)).tolist()
    lean = np.array([math.cos(turn), math.sin(turn), 0.6]) / math.hypot(1, 0.6)
    if centre[2] >= NEAREST_M + radius_m:
        radius_px = camera.focal_px * radius_m / centre[2]
        rgbs = prop.rgb, _STRIPE_RGB
        yield from sphere(camera, centre, radius_px, rgbs, (camera.axes @ lean).tolist())


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
    rim_at = above(vessel.base, vessel.height_m)
    for disc in _see_disc(camera, rim_at, vessel.base, radius_m=vessel.rim_m, margin_px=1.0):
        light_x, light_y = 0.6 * LIGHT[0], 0.6 * LIGHT[1]
        rgb, p, q = np.array(vessel.rgb), disc.p, disc.q
        outline = rod(p, q, disc.end, (1.0, disc.end_radius * vessel.foot_m / vessel.rim_m))
        from_centre = np.sqrt(p * p + q * q)
        enclosed = coverage((vessel.opening - from_centre) * disc.unit_px)
        rim = coverage((1.0 - from_centre) * disc.unit_px)
        # A rod ends where its thin end begins: the rim of a flat dish lies beyond that.
        alpha = np.maximum(coverage(outline.inside * disc.unit_px), rim)
        wall_light = outline.off_x * light_x + outline.off_y * light_y + 0.78
        inner_light = 0.9 - vessel.hollow * (p * light_x + q * light_y)
        in_band = (np.abs(outline.along - 0.5) < 0.16).astype(np.float32)
        paint = blend(flat(rgb), flat(_paler(rgb, vessel.band)), in_band)
        wall = blend(paint * wall_light, flat(rgb) * 1.08, rim)
        whole = blend(wall, flat(vessel.inner * rgb) * inner_light, enclosed)
        yield Layer(disc.box, alpha, whole, disc.depth_m, disc.depth_m + behind_m)
        if is_filled:
            near = alpha * (1.0 - enclosed)
            yield Layer(disc.box, near, wall, disc.depth_m, disc.depth_m - behind_m)


def _upright_shadow(
    camera: Camera, ends: Floats, *, radius_m: float, blur_m: float
) -> Iterator[Layer]:
    """Yield the shadow of an upright round object; `ends` are its foot and top on the table."""
    margin_px = camera.focal_px * blur_m / max(float(camera.project(ends[0])[2]), NEAREST_M)
    for disc in _see_disc(camera, ends[0], ends[1], radius_m=radius_m, margin_px=margin_px):
        inside = rod(disc.p, disc.q, disc.end, (1.0, disc.end_radius)).inside
        blur = max(blur_m / radius_m, 1 / disc.unit_px)
        yield shadow_layer(disc.box, inside, blur=blur, darkness=0.36)


class _Disc(NamedTuple):
    """Pixels in the coordinates of a level circle, its axes parallel to those of the table."""

    box: Box
    p: Plane
    q: Plane
    end: tuple[float, float]  # the centre of the other circle
    end_radius: float  # of the other circle if it is as large as the first
    unit_px: float
    depth_m: float


def _see_disc(
    camera: Camera, centre: Floats, end: Floats, *, radius_m: float, margin_px: float
) -> Iterator[_Disc]:
    """Yield the pixels around two level circles, if the camera sees them."""
    offsets = np.array([[0.0, 0.0, 0.0], [radius_m, 0.0, 0.0], [0.0, radius_m, 0.0], end - centre])
    here, east, north, there = camera.project(centre + offsets).tolist()
    if min(here[2], there[2]) < NEAREST_M:
        return
    a, b = east[0] - here[0], east[1] - here[1]
    c, d = north[0] - here[0], north[1] - here[1]
    reach = max(abs(a) + abs(c), abs(b) + abs(d)) + margin_px
    box = camera.box([(at[0], at[1], reach) for at in (here, there)])
    area = a * d - b * c
    if box is None or abs(area) < 1e-3:
        return
    x, y = camera.around(box, here[0], here[1])
    end_x, end_y = there[0] - here[0], there[1] - here[1]
    yield _Disc(
        box=box,
        p=x * (d / area) - y * (c / area),
        q=y * (a / area) - x * (b / area),
        end=((d * end_x - c * end_y) / area, (a * end_y - b * end_x) / area),
        end_radius=here[2] / there[2],
        unit_px=abs(area) ** 0.5,
        depth_m=(here[2] + there[2]) / 2,
    )


def _paler(rgb: Floats, share: float) -> Floats:
    return rgb + share * (230 - rgb)
