# SPDX-License-Identifier: Apache-2.0
"""The robot as layers: links and motors are rods with round ends, the stand is two vessels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robostream.tools.synth.arm import ArmPose, Floats
from robostream.tools.synth.camera import NEAREST_M, Camera, cast_down
from robostream.tools.synth.layers import Grid, Item, Layer, Rgb, Spot, capsule, rod_shadow
from robostream.tools.synth.objects import Vessel, draw_vessel


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


def _motor(at: Floats, half: Floats, radius_m: float, livery: Livery) -> Bone:
    """Return a motor: a short thick rod along the joint's axis."""
    return Bone(at - half, at + half, radius_m, radius_m, livery.motor, has_shadow=False)
