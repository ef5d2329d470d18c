# SPDX-License-Identifier: Apache-2.0
"""Geometry: the arm's joint angles to points in space and back, and points to pixels.

A five-joint arm with a two-finger gripper stands at the origin of a table whose top is z = 0.
Joints, in this order: shoulder pan (about the vertical), shoulder lift, elbow flex and wrist flex
(all in the arm's vertical plane), wrist roll (about the approach direction), and the gripper.
Angles are in radians, the gripper goes from 0 (shut) to 1 (open), lengths are in metres. Cameras
are pinhole cameras.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

_JOINTS = ("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll", "gripper")
JOINT_NAMES = tuple(f"{joint}.pos" for joint in _JOINTS)
SHOULDER_HEIGHT_M = 0.12
UPPER_ARM_M = 0.24
FOREARM_M = 0.22
HAND_M = 0.15  # from the wrist joint to the point between the finger tips
GRIPPER_OPEN_M = 0.085  # between the fingers when the gripper is open
NEAREST_M = 0.03  # nothing closer to a camera is drawn
LIGHT = (0.36, 0.30, 0.88)  # unit vector towards the lamp, in the room

Plane = npt.NDArray[np.floating[Any]]
Box = tuple[slice, slice]  # rows and columns
Floats = npt.NDArray[np.float64]


class ArmPose(NamedTuple):
    """Where the parts of the arm are; each field is a point or unit vector of shape (..., 3)."""

    shoulder: Floats
    elbow: Floats
    wrist: Floats
    tip: Floats  # the point between the finger tips
    side: Floats  # the axis of the shoulder, elbow and wrist joints
    approach: Floats  # out of the hand, towards the tip
    closing: Floats  # from one finger to the other
    opening_m: Floats  # shape (...): between the fingers

    def at(self, frame: int) -> ArmPose:
        """Return the pose of one frame of many."""
        return ArmPose(*(value[frame] for value in self))


def forward(joints: npt.ArrayLike) -> ArmPose:
    """Return the pose of the arm with these joints, of shape (..., 6). Pure."""
    pan, lift, elbow, flex, roll, grip = np.moveaxis(np.asarray(joints, np.float64), -1, 0)
    ahead = np.stack([np.cos(pan), np.sin(pan), np.zeros_like(pan)], -1)
    side = np.stack([-np.sin(pan), np.cos(pan), np.zeros_like(pan)], -1)
    shoulder = above(np.zeros_like(ahead), SHOULDER_HEIGHT_M)
    elbow_at = shoulder + UPPER_ARM_M * _in_plane(ahead, lift)
    wrist = elbow_at + FOREARM_M * _in_plane(ahead, lift + elbow)
    pitch = lift + elbow + flex
    approach = _in_plane(ahead, pitch)
    upwards = _in_plane(ahead, pitch + np.pi / 2)
    closing = np.cos(roll)[..., None] * side + np.sin(roll)[..., None] * upwards
    tip, opening_m = wrist + HAND_M * approach, GRIPPER_OPEN_M * grip
    return ArmPose(shoulder, elbow_at, wrist, tip, side, approach, closing, opening_m)


def inverse(tip: Floats, *, pitch: Floats, roll: Floats, grip: Floats) -> Floats:
    """Return the joints, of shape (..., 6), that bring the tip to points of shape (..., 3). Pure.

    For a point out of reach, the arm is stretched towards it. `pitch` is the elevation of the
    approach direction; -pi/2 points the hand straight down. Roll and grip are passed on.
    """
    pan = np.arctan2(tip[..., 1], tip[..., 0])
    out = np.hypot(tip[..., 0], tip[..., 1]) - HAND_M * np.cos(pitch)
    up = tip[..., 2] - HAND_M * np.sin(pitch) - SHOULDER_HEIGHT_M
    square = out**2 + up**2
    bend = (square - UPPER_ARM_M**2 - FOREARM_M**2) / (2 * UPPER_ARM_M * FOREARM_M)
    elbow = -np.arccos(np.clip(bend, -1.0, 1.0))  # negative: the elbow is above the hand
    lift = np.arctan2(up, out) - np.arctan2(
        FOREARM_M * np.sin(elbow), UPPER_ARM_M + FOREARM_M * np.cos(elbow)
    )
    return np.stack([pan, lift, elbow, pitch - lift - elbow, roll, grip], -1)


def above(points: Floats, height_m: float) -> Floats:
    """Return the points this much higher."""
    return np.asarray(points + np.array([0.0, 0.0, height_m]))


def _in_plane(ahead: Floats, elevation: Floats) -> Floats:
    """Return unit vectors in the arm's vertical plane at these elevations."""
    level, rise = np.cos(elevation)[..., None], np.sin(elevation)[..., None]
    return np.asarray(level * ahead + rise * np.array([0.0, 0.0, 1.0]))


class Mount(NamedTuple):
    """A camera fixed in the room: its position, target and field of view."""

    eye: tuple[float, float, float]
    target: tuple[float, float, float]
    view_deg: float


# The wrist camera is second, so that two cameras are what most arms have.
MOUNTS: dict[str, Mount | None] = {
    "front": Mount((0.90, 0.30, 0.52), (0.17, 0.0, 0.10), 43.0),
    "wrist": None,  # rides on the hand
    "top": Mount((0.24, 0.0, 1.12), (0.239, 0.0, 0.0), 46.0),
    "left": Mount((0.34, 0.88, 0.40), (0.17, 0.0, 0.10), 46.0),
    "right": Mount((0.42, -0.86, 0.46), (0.17, 0.0, 0.10), 46.0),
    "shoulder": Mount((-0.34, 0.30, 0.58), (0.26, -0.02, 0.03), 54.0),
}
CAMERA_NAMES = tuple(MOUNTS)
DEPTH_CAMERA_NAME = "front"  # the fixed camera beside which a depth camera stands
WRIST_VIEW_DEG = 78.0


@dataclass(frozen=True)
class Camera:
    """A pinhole camera with square pixels, its centre in the middle of the image."""

    eye: Floats  # (3,) metres
    axes: Floats  # (3, 3): rows point right, down and ahead in the image
    focal_px: float
    width: int
    height: int

    @cached_property
    def light(self) -> tuple[float, float, float]:
        """The direction to the lamp as the camera sees it: right, down, ahead."""
        right, down, ahead = (self.axes @ np.array(LIGHT)).tolist()
        return right, down, ahead

    def box(self, spots: Sequence[tuple[float, float, float]]) -> Box:
        """Return the box of pixels that covers (column, row, margin) spots; it may be empty."""
        left = max(0, math.floor(min(c - m for c, _, m in spots)))
        right = min(self.width, math.ceil(max(c + m for c, _, m in spots)))
        top = max(0, math.floor(min(r - m for _, r, m in spots)))
        bottom = min(self.height, math.ceil(max(r + m for _, r, m in spots)))
        return slice(top, max(top, bottom)), slice(left, max(left, right))

    def around(self, box: Box, column: float, row: float) -> tuple[Plane, Plane]:
        """Return the pixel centres of a box as offsets from a point, (1, w) and (h, 1)."""
        rows, columns = (np.arange(part.start, part.stop, dtype=np.float32) + 0.5 for part in box)
        return columns[None] - column, rows[:, None] - row

    def project(self, points: Floats) -> Floats:
        """Return (column, row, depth in metres) for points of shape (..., 3)."""
        image: Floats = (points - self.eye) @ self.axes.T
        # Points behind the camera get meaningless columns and rows; their depth is negative.
        image[..., :2] *= self.focal_px / np.maximum(image[..., 2:], 1e-6)
        image[..., :2] += (self.width / 2, self.height / 2)
        return image

    def rays(self, columns: npt.ArrayLike, rows: npt.ArrayLike) -> Floats:
        """Return ray directions, of depth 1, through points of the image."""
        x = (np.asarray(columns) - self.width / 2) / self.focal_px
        y = (np.asarray(rows) - self.height / 2) / self.focal_px
        spread = x[..., None] * self.axes[0] + y[..., None] * self.axes[1]
        return np.asarray(spread + self.axes[2])

    def table_homography(self) -> Floats:
        """Return the matrix from (column, row, 1) to homogeneous (x, y, w) on the table top.

        The last coordinate is positive for pixels below the horizon.
        """
        f, across, down = self.focal_px, self.width / 2, self.height / 2
        centre = np.array([[1 / f, 0.0, -across / f], [0.0, 1 / f, -down / f], [0.0, 0.0, 1.0]])
        direction = self.axes.T @ centre
        x, y, z = self.eye
        # eye - z / direction_z * direction, times -direction_z
        to_table = np.array([[z, 0.0, -x], [0.0, z, -y], [0.0, 0.0, -1.0]])
        return np.asarray(to_table @ direction)


def fixed_camera(mount: Mount, *, shift: Floats, width: int, height: int) -> Camera:
    """Return the camera on a mount, moved by `shift`."""
    eye = np.array(mount.eye) + shift
    ahead = _unit(np.subtract(mount.target, mount.eye))
    right = _unit(np.cross(ahead, np.array([0.0, 0.0, 1.0])))
    return _open_camera(eye, ahead, right, mount.view_deg, width, height)


def wrist_camera(pose: ArmPose, *, width: int, height: int) -> Camera:
    """Return the camera that rides on the hand of one arm pose, fingers at its lower edge."""
    normal = np.cross(pose.approach, pose.closing)
    eye = pose.wrist + 0.035 * pose.approach + 0.062 * normal
    ahead = _unit(pose.tip + 0.03 * normal + 0.02 * pose.approach - eye)
    return _open_camera(eye, ahead, -pose.closing, WRIST_VIEW_DEG, width, height)


def cast_down(points: Floats) -> Floats:
    """Return where the shadows of points fall on the table."""
    lift = np.maximum(points[..., 2:], 0.0) / LIGHT[2]
    ground = points - lift * np.array(LIGHT)
    ground[..., 2] = 0.0
    return np.asarray(ground)


def _open_camera(
    eye: Floats, ahead: Floats, right: Floats, view_deg: float, width: int, height: int
) -> Camera:
    """Return a camera whose field of view spans the shorter side of the image."""
    focal_px = min(width, height) / (2 * math.tan(math.radians(view_deg) / 2))
    axes = np.stack([right, np.cross(ahead, right), ahead])
    return Camera(eye, axes, focal_px, width, height)


def _unit(vector: Floats) -> Floats:
    return np.asarray(vector / np.linalg.norm(vector))


def flat(rgb: npt.ArrayLike) -> Plane:
    """Return a colour that broadcasts over a planar image."""
    return np.array(rgb, np.float32)[:, None, None]
