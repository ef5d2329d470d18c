# SPDX-License-Identifier: Apache-2.0
"""What one camera sees of one episode: a frame number to an image, with the noise of a sensor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.arm import ArmPose, forward
from robostream.tools.synth.camera import (
    CAMERA_NAMES,
    MOUNTS,
    Camera,
    Plane,
    fixed_camera,
    wrist_camera,
)
from robostream.tools.synth.objects import (
    LIVERIES,
    Layer,
    Livery,
    draw_arm,
    draw_object,
    draw_stand,
)
from robostream.tools.synth.room import make_room, see_room, see_table
from robostream.tools.synth.script import EpisodeScript, RandomStream, generator_of

NOISE_LEVEL = 2.5  # the standard deviation of brightness noise, in levels of 255
_REACH = 8  # no grain is stronger than this many levels
_TILE_MARGIN = 64  # how many rows and columns the noise tile is larger than the image


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
    episode = script.seed, script.episode
    exposure = generator_of(RandomStream.EXPOSURE, *episode).uniform(0.92, 1.04)
    livery = LIVERIES[script.seed % len(LIVERIES)]
    mount, still = MOUNTS[camera_name], None
    if mount is not None:
        # Fixed cameras are moved slightly at random before each episode.
        rng = generator_of(RandomStream.JOLT, *episode, CAMERA_NAMES.index(camera_name))
        camera = fixed_camera(mount, shift=rng.normal(0, 0.008, 3), width=width, height=height)
        image, depth_m = see_room(make_room(script.seed), camera)
        layers = _draw_resting(script, livery, camera)
        for layer in layers:
            if math.isinf(layer.far_m):
                _paint(image, layer)
        still = Still(camera, image, depth_m, [x for x in layers if not math.isinf(x.far_m)])
    poses = forward(script.joints)
    return View(script, camera_name, width, height, poses, livery, np.float32(exposure), still)


def camera_at(view: View, frame: int) -> Camera:
    """Return the camera of a view in one frame."""
    if view.still is not None:
        return view.still.camera
    return wrist_camera(view.poses.at(frame), width=view.width, height=view.height)


def render(view: View, frame: int) -> npt.NDArray[np.uint8]:
    """Return one image, (height, width, 3). Pure: the same script gives the same pixels."""
    camera, script = camera_at(view, frame), view.script
    image = view.still.image.copy() if view.still else see_table(make_room(script.seed), camera)
    for layer in _draw(view, camera, frame):
        _paint(image, layer)
    image *= view.exposure
    return _add_noise(image, script.seed, script.episode, frame, view.camera_name)


def render_depth(view: View, frame: int) -> Plane:
    """Return the depth in metres, (height, width), that a fixed camera sees. Pure."""
    if view.still is None:
        raise ValueError(f"want a fixed camera for depth, got {view.camera_name!r}")
    image = view.still.depth_m.copy()
    for layer in _draw(view, view.still.camera, frame):
        # A layer counts where it covers at least half a pixel.
        np.copyto(image[layer.box], layer.depth_m, where=layer.alpha >= 0.5)
    return image


def _draw(view: View, camera: Camera, frame: int) -> list[Layer]:
    """Return the layers of one frame in painting order."""
    arm = draw_arm(camera, view.poses.at(frame), view.livery)
    moved = draw_object(camera, view.script.tracks[0], frame)
    resting = view.still.layers if view.still else _draw_resting(view.script, view.livery, camera)
    return sorted([*arm, *moved, *resting], key=lambda layer: -layer.far_m)


def _draw_resting(script: EpisodeScript, livery: Livery, camera: Camera) -> list[Layer]:
    """Return the layers of everything on the table that never moves, in painting order."""
    objects = (layer for track in script.tracks[1:] for layer in draw_object(camera, track, 0))
    return sorted([*draw_stand(camera, livery), *objects], key=lambda layer: -layer.far_m)


def _paint(image: Plane, layer: Layer) -> None:
    """Blend a layer into a planar image."""
    region = image[:, layer.box[0], layer.box[1]]
    region += layer.alpha * (layer.rgb - region)


def _add_noise(
    image: Plane, seed: int, episode: int, frame: int, camera_name: str
) -> npt.NDArray[np.uint8]:
    """Return a planar image, clipped in place, as (height, width, 3) bytes with noise added."""
    _, height, width = image.shape
    key = seed, episode, frame, CAMERA_NAMES.index(camera_name)
    row, column = generator_of(RandomStream.NOISE_SHIFT, *key).integers(_TILE_MARGIN, size=2)
    grain = _noise_tile(seed, height, width)[row : row + height, column : column + width]
    # Within these bounds the sum cannot leave 0..255, so bytes are enough to add it.
    np.clip(image, _REACH, 255 - _REACH, out=image)
    pixels = np.empty((height, width, 3), np.uint8)
    for channel in range(3):
        np.copyto(pixels[..., channel], image[channel], casting="unsafe")
    pixels += grain
    pixels -= np.uint8(_REACH)
    return pixels


@lru_cache(maxsize=2)
def _noise_tile(seed: int, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return the noise of a seed, _REACH meaning none; mostly grey, a little coloured."""
    rng = generator_of(RandomStream.NOISE, seed)
    shape = (height + _TILE_MARGIN, width + _TILE_MARGIN)
    grey = rng.normal(0.0, NOISE_LEVEL, (*shape, 1))
    coloured = rng.normal(0.0, NOISE_LEVEL / 3, (*shape, 3))
    grain = np.rint(grey + coloured) + _REACH
    return np.asarray(grain.clip(0, 2 * _REACH), np.uint8)
