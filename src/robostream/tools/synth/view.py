# SPDX-License-Identifier: Apache-2.0
"""What one camera sees of one episode: a frame number to an image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.arm import ArmPose, forward
from robostream.tools.synth.camera import (
    CAMERA_NAMES,
    MOUNTS,
    Camera,
    Plane,
    add_noise,
    fixed_camera,
    wrist_camera,
)
from robostream.tools.synth.layers import Layer, in_order, paint, paint_depth
from robostream.tools.synth.objects import LIVERIES, Livery, draw_arm, draw_object, draw_stand
from robostream.tools.synth.room import make_room, see_room, see_table
from robostream.tools.synth.script import EpisodeScript, RandomStream, generator_of

NOISE_LEVEL = 2.5


@dataclass(frozen=True, slots=True, eq=False)
class Still:
    """What a fixed camera sees of everything that never moves."""

    camera: Camera
    image: Plane  # (3, height, width): the room, and the shadows on it
    depth_m: Plane  # (height, width)
    layers: list[Layer]  # not in the image: the arm may pass behind them


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A camera's view of an episode, with everything that stays the same in all frames."""

    script: EpisodeScript
    camera_name: str
    width: int
    height: int
    poses: ArmPose  # of all frames
    livery: Livery
    exposure: np.float32
    still: Still | None  # None: the camera rides on the wrist


def open_view(script: EpisodeScript, camera_name: str, *, width: int, height: int) -> View:
    """Return the view a named camera has of an episode. Pure."""
    exposure = generator_of(RandomStream.EXPOSURE, script.seed, script.episode).uniform(0.92, 1.04)
    livery = LIVERIES[script.seed % len(LIVERIES)]
    mount, still = MOUNTS[camera_name], None
    if mount is not None:
        # Fixed cameras are moved slightly at random before each episode.
        key = (script.seed, script.episode, CAMERA_NAMES.index(camera_name))
        shift = generator_of(RandomStream.JOLT, *key).normal(0, 0.008, 3)
        camera = fixed_camera(mount, shift=shift, width=width, height=height)
        still = _see_still(script, livery, camera)
    poses = forward(script.joints)
    return View(script, camera_name, width, height, poses, livery, np.float32(exposure), still)


def camera_at(view: View, frame: int) -> Camera:
    """Return the camera of a view in one frame."""
    if view.still is not None:
        return view.still.camera
    return wrist_camera(view.poses.at(frame), width=view.width, height=view.height)


def render(view: View, frame: int) -> npt.NDArray[np.uint8]:
    """Return one image, (height, width, 3). Pure: the same script gives the same pixels."""
    camera, seed = camera_at(view, frame), view.script.seed
    image = view.still.image.copy() if view.still else see_table(make_room(seed), camera)
    for layer in _draw(view, camera, frame):
        paint(image, layer)
    image *= view.exposure
    key = (view.script.episode, frame, CAMERA_NAMES.index(view.camera_name))
    return add_noise(image, seed=seed, level=NOISE_LEVEL, key=key)


def render_depth(view: View, frame: int) -> Plane:
    """Return the depth in metres, (height, width), that a fixed camera sees. Pure."""
    if view.still is None:
        raise ValueError(f"want a fixed camera for depth, got {view.camera_name!r}")
    image = view.still.depth_m.copy()
    for layer in _draw(view, view.still.camera, frame):
        paint_depth(image, layer)
    return image


def _draw(view: View, camera: Camera, frame: int) -> list[Layer]:
    """Return the layers of one frame in painting order."""
    arm = draw_arm(camera, view.poses.at(frame), view.livery)
    moved = draw_object(camera, view.script.tracks[0], frame)
    resting = view.still.layers if view.still else _draw_resting(view.script, view.livery, camera)
    return in_order([*arm, *moved, *resting])


def _draw_resting(script: EpisodeScript, livery: Livery, camera: Camera) -> list[Layer]:
    """Return the layers of everything on the table that never moves, in painting order."""
    objects = (layer for track in script.tracks[1:] for layer in draw_object(camera, track, 0))
    return in_order([*draw_stand(camera, livery), *objects])


def _see_still(script: EpisodeScript, livery: Livery, camera: Camera) -> Still:
    image, depth_m = see_room(make_room(script.seed), camera)
    layers = _draw_resting(script, livery, camera)
    for shadow in layers:
        if math.isinf(shadow.far_m):
            paint(image, shadow)
    return Still(camera, image, depth_m, [x for x in layers if not math.isinf(x.far_m)])
