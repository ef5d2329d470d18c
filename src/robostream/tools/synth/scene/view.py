# SPDX-License-Identifier: Apache-2.0
"""What one camera sees of one episode: frames to images."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.scene.arm import ArmPose, forward
from robostream.tools.synth.scene.chance import Stream, chance
from robostream.tools.synth.scene.layers import (
    Grid,
    Item,
    Layer,
    Plane,
    make_grid,
    paint,
    paint_depth,
)
from robostream.tools.synth.scene.noise import add_noise
from robostream.tools.synth.scene.optics import (
    CAMERA_NAMES,
    LIGHT,
    MOUNTS,
    Camera,
    Mount,
    fixed_camera,
    wrist_camera,
)
from robostream.tools.synth.scene.robot import (
    LIVERIES,
    Livery,
    arm_items,
    arm_shadows,
    bones,
    stand_items,
)
from robostream.tools.synth.scene.room import see_room, see_table
from robostream.tools.synth.scene.script import EpisodeScript
from robostream.tools.synth.scene.texture import Room, make_room
from robostream.tools.synth.scene.things import Placed, thing_items, thing_shadow

NOISE_LEVEL = 2.5


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A camera's view of an episode, with all that does not change from frame to frame."""

    script: EpisodeScript
    camera_name: str
    width: int
    height: int
    poses: ArmPose  # of all frames
    room: Room
    livery: Livery
    exposure: np.float32
    still: Still | None  # None: the camera rides on the wrist


@dataclass(frozen=True, slots=True, eq=False)
class Still:
    """What a fixed camera sees of the things that never move."""

    camera: Camera
    image: Plane  # (3, height, width): the room, and the shadows on it
    depth_m: Plane  # (height, width)
    items: tuple[Item, ...]  # not in the image: the arm may pass behind them


def open_view(script: EpisodeScript, camera_name: str, *, width: int, height: int) -> View:
    """Return the view a named camera has of an episode. Pure."""
    exposure = chance(Stream.EXPOSURE, script.seed, script.episode).uniform(0.92, 1.04)
    room = make_room(script.seed)
    livery = LIVERIES[script.seed % len(LIVERIES)]
    mount, still = MOUNTS[camera_name], None
    if mount is not None:
        camera = _jolted(script, camera_name, mount, width=width, height=height)
        still = _stand_still(script, room, livery, camera)
    return View(
        script=script,
        camera_name=camera_name,
        width=width,
        height=height,
        poses=forward(script.joints),
        room=room,
        livery=livery,
        exposure=np.float32(exposure),
        still=still,
    )


def camera_at(view: View, frame: int) -> Camera:
    """Return the camera of a view as it stands in one frame."""
    if view.still is not None:
        return view.still.camera
    return wrist_camera(view.poses.at(frame), width=view.width, height=view.height)


def render(view: View, frame: int) -> npt.NDArray[np.uint8]:
    """Return one image, (height, width, 3). Pure: the same script gives the same pixels."""
    camera = camera_at(view, frame)
    image = see_table(view.room, camera) if view.still is None else view.still.image.copy()
    for layer in _layers(view, camera, frame, shadows=True):
        paint(image, layer)
    image *= view.exposure
    place = (view.script.episode, frame, CAMERA_NAMES.index(view.camera_name))
    return add_noise(image, seed=view.script.seed, level=NOISE_LEVEL, place=place)


def render_depth(view: View, frame: int) -> Plane:
    """Return the depth in metres, (height, width), that a fixed camera sees. Pure."""
    if view.still is None:
        raise ValueError(f"want a fixed camera for depth, got {view.camera_name!r}")
    image = view.still.depth_m.copy()
    for layer in _layers(view, view.still.camera, frame, shadows=False):
        paint_depth(image, layer)
    return image


def _layers(view: View, camera: Camera, frame: int, *, shadows: bool) -> list[Layer]:
    """Return the layers of one frame in painting order: shadows, then far to near."""
    grid = _grid(camera)
    parts = bones(view.poses.at(frame), view.livery)
    moving, resting = _things(view.script, frame)
    items = [*arm_items(grid, camera, parts)]
    if view.still is None:
        moving += resting
        items += stand_items(grid, camera, view.livery)
    else:
        items += view.still.items
    for thing in moving:
        items += thing_items(grid, camera, thing)
    items.sort(key=lambda item: -item.depth_m)
    upright = [item.layer for item in items]
    if not shadows:
        return upright
    return [*arm_shadows(grid, camera, parts), *_thing_shadows(grid, camera, moving), *upright]


def _stand_still(script: EpisodeScript, room: Room, livery: Livery, camera: Camera) -> Still:
    """Return what a fixed camera sees of the things that never move."""
    grid = _grid(camera)
    image, depth_m = see_room(room, camera)
    _, resting = _things(script, 0)
    for layer in _thing_shadows(grid, camera, resting):
        paint(image, layer)
    items = [*stand_items(grid, camera, livery)]
    for thing in resting:
        items += thing_items(grid, camera, thing)
    return Still(camera, image, depth_m, tuple(items))


def _thing_shadows(grid: Grid, camera: Camera, things: list[Placed]) -> list[Layer]:
    """Return the shadows of things on the table."""
    found = (thing_shadow(grid, camera, thing) for thing in things)
    return [layer for layer in found if layer is not None]


def _things(script: EpisodeScript, frame: int) -> tuple[list[Placed], list[Placed]]:
    """Return the moved thing, and those that stay where they are all through the episode."""
    placed = [Placed(t.prop, t.base[frame], float(t.turn[frame])) for t in script.tracks]
    return placed[:1], placed[1:]


def _jolted(
    script: EpisodeScript, camera_name: str, mount: Mount, *, width: int, height: int
) -> Camera:
    """Return a fixed camera, which nobody puts back quite the same before the next episode."""
    place = (script.seed, script.episode, CAMERA_NAMES.index(camera_name))
    shift = chance(Stream.JOLT, *place).normal(0, 0.008, 3)
    return fixed_camera(mount, shift=shift, width=width, height=height)


def _grid(camera: Camera) -> Grid:
    """Return the pixel grid of a camera, with the light as it sees it."""
    right, down, ahead = (camera.axes @ np.array(LIGHT)).tolist()
    return make_grid(camera.width, camera.height, (right, down, ahead))
