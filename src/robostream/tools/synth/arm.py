# SPDX-License-Identifier: Apache-2.0
"""The arm's geometry: joint angles to points in space, and back.

A five-joint arm with a two-finger gripper stands at the origin of a table whose top is z = 0.
Joints, in this order: shoulder pan (about the vertical), shoulder lift, elbow flex and wrist flex
(all in the arm's vertical plane), wrist roll (about the approach direction), and the gripper.
Angles are in radians, the gripper goes from 0 (shut) to 1 (open), lengths are in metres.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

JOINT_NAMES = (
    "shoulder_pan.pos",
    "shoulder_lift.pos",
    "elbow_flex.pos",
    "wrist_flex.pos",
    "wrist_roll.pos",
    "gripper.pos",
)
SHOULDER_HEIGHT_M = 0.12
UPPER_ARM_M = 0.24
FOREARM_M = 0.22
HAND_M = 0.15  # from the wrist joint to the point between the finger tips
GRIPPER_OPEN_M = 0.085  # between the fingers when the gripper is open

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
    closing = np.cos(roll)[..., None] * side + np.sin(roll)[..., None] * _in_plane(
        ahead, pitch + np.pi / 2
    )
    return ArmPose(
        shoulder=shoulder,
        elbow=elbow_at,
        wrist=wrist,
        tip=wrist + HAND_M * approach,
        side=side,
        approach=approach,
        closing=closing,
        opening_m=GRIPPER_OPEN_M * grip,
    )


def inverse(tip: Floats, *, pitch: Floats, roll: Floats, grip: Floats) -> Floats:
    """Return the joints, of shape (..., 6), that bring the tip to a point. Pure.

    For a point out of reach, the arm is stretched towards it.

    Args:
        tip: Points of shape (..., 3).
        pitch: The elevation of the approach direction; -pi/2 points the hand straight down.
        roll: The wrist roll to pass on.
        grip: The gripper opening, 0 to 1, to pass on.
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
