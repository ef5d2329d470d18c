# SPDX-License-Identifier: Apache-2.0
"""What one camera sees of one episode: a frame number to an image."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.arm import ArmPose, forward
from robostream.tools.synth.camera import (
    CAMERA_NAMES,
    LIGHT,
    MOUNTS,
    Camera,
    Mount,
    add_noise,
    fixed_camera,
    wrist_camera,
)
from robostream.tools.synth.layers import (
    Grid,
    Item,
    Layer,
    Plane,
    make_grid,
    paint,
    paint_depth,
)
from robostream.tools.synth.objects import (
    LIVERIES,
    Livery,
    Placed,
    arm_items,
    arm_shadows,
    bones,
    object_items,
    object_shadow,
    stand_items,
)
from robostream.tools.synth.room import Room, make_room, see_room, see_table
from robostream.tools.synth.script import EpisodeScript, RandomStream, generator_of

NOISE_LEVEL = 2.5


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A camera's view of an episode, with everything that stays the same in all frames."""

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
    """What a fixed camera sees of everything that never moves."""

    camera: Camera
    image: Plane  # (3, height, width): the room, and the shadows on it
    depth_m: Plane  # (height, width)
    items: tuple[Item, ...]  # not in the image: the arm may pass behind them


def open_view(script: EpisodeScript, camera_name: str, *, width: int, height: int) -> View:
    """Return the view a named camera has of an episode. Pure."""
    exposure = generator_of(RandomStream.EXPOSURE, script.seed, script.episode).uniform(0.92, 1.04)
    room = make_room(script.seed)
    livery = LIVERIES[script.seed % len(LIVERIES)]
    mount, still = MOUNTS[camera_name], None
    if mount is not None:
        camera = _place_camera(script, camera_name, mount, width=width, height=height)
        still = _render_still(script, room, livery, camera)
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
    """Return the camera of a view in one frame."""
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
    key = (view.script.episode, frame, CAMERA_NAMES.index(view.camera_name))
    return add_noise(image, seed=view.script.seed, level=NOISE_LEVEL, key=key)


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
    moving, resting = _objects(view.script, frame)
    items = [*arm_items(grid, camera, parts)]
    if view.still is None:
        moving += resting
        items += stand_items(grid, camera, view.livery)
    else:
        items += view.still.items
    for placed in moving:
        items += object_items(grid, camera, placed)
    items.sort(key=lambda item: -item.depth_m)
    upright = [item.layer for item in items]
    if not shadows:
        return upright
    return [*arm_shadows(grid, camera, parts), *_object_shadows(grid, camera, moving), *upright]


def _render_still(script: EpisodeScript, room: Room, livery: Livery, camera: Camera) -> Still:
    """Return what a fixed camera sees of everything that never moves."""
    grid = _grid(camera)
    image, depth_m = see_room(room, camera)
    _, resting = _objects(script, 0)
    for layer in _object_shadows(grid, camera, resting):
        paint(image, layer)
    items = [*stand_items(grid, camera, livery)]
    for placed in resting:
        items += object_items(grid, camera, placed)
    return Still(camera, image, depth_m, tuple(items))


def _object_shadows(grid: Grid, camera: Camera, objects: list[Placed]) -> list[Layer]:
    found = (object_shadow(grid, camera, placed) for placed in objects)
    return [layer for layer in found if layer is not None]


def _objects(script: EpisodeScript, frame: int) -> tuple[list[Placed], list[Placed]]:
    """Return the moved object, and those that never move."""
    placed = [Placed(t.prop, t.base[frame], float(t.turn[frame])) for t in script.tracks]
    return placed[:1], placed[1:]


def _place_camera(
    script: EpisodeScript, camera_name: str, mount: Mount, *, width: int, height: int
) -> Camera:
    """Return a fixed camera, moved slightly at random before each episode."""
    key = (script.seed, script.episode, CAMERA_NAMES.index(camera_name))
    shift = generator_of(RandomStream.JOLT, *key).normal(0, 0.008, 3)
    return fixed_camera(mount, shift=shift, width=width, height=height)


def _grid(camera: Camera) -> Grid:
    """Return the pixel grid of a camera, with the light as it sees it."""
    right, down, ahead = (camera.axes @ np.array(LIGHT)).tolist()
    return make_grid(camera.width, camera.height, (right, down, ahead))
