# SPDX-License-Identifier: Apache-2.0
"""What one camera sees of one episode: a frame number to an image, with the noise of a sensor.

A fixed camera casts a ray per pixel at the table, the floor and the walls, once per episode. The
camera on the wrist reads the texture of the table through a homography, in every frame.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from robostream.tools.synth import objects
from robostream.tools.synth.geometry import (
    CAMERA_NAMES,
    MOUNTS,
    ArmPose,
    Camera,
    Floats,
    Plane,
    fixed_camera,
    flat,
    forward,
    wrist_camera,
)
from robostream.tools.synth.objects import Layer, Livery
from robostream.tools.synth.script import EpisodeScript, RandomStream, generator_of

TEXELS = 1024
MAP_M = 1.12  # the side of the square the texture covers: the table and some floor around it
MAP_X0_M, MAP_Y0_M = -0.30, -0.56
TABLE_X_M, TABLE_Y_M = (-0.17, 0.62), (-0.50, 0.50)
CLOTH_X_M, CLOTH_Y_M = (0.12, 0.46), (-0.38, 0.38)
CHECK_M, PLANK_M, GAP_M = 0.0425, 0.13, 0.0016
FLOOR_RGB = (112.0, 108.0, 104.0)
TABLE_THICKNESS_M = 0.035
ROOM_LOW_M, ROOM_HIGH_M = np.array([-1.0, -1.7, -0.74]), np.array([2.4, 1.7, 1.7])
_RAYS_PER_SIDE = 2  # of a pixel
LEVELS = 4
_WOODS = ((176, 132, 88), (150, 104, 66), (196, 158, 116), (128, 92, 66))
_CLOTHS = ((86, 104, 124), (124, 74, 70), (88, 112, 88), (150, 142, 128))
_WALLS = ((182, 186, 188), (190, 180, 162), (160, 174, 182), (172, 182, 166))
NOISE_LEVEL = 2.5  # the standard deviation of brightness noise, in levels of 255
_REACH = 8  # no grain is stronger than this many levels
_TILE_MARGIN = 64  # how many rows and columns the noise tile is larger than the image

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Room:
    """The textures and colours of the room of one seed."""

    table: tuple[Bytes, ...]  # planar texels [x, y]; each level has half the rows of the one before
    wall_rgb: Floats  # (3,)
    poster_rgb: Floats  # (3,)


@lru_cache(maxsize=2)
def make_room(seed: int) -> Room:
    """Return the room of a seed. Pure; the last two are cached."""
    rng = generator_of(RandomStream.ROOM, seed)
    image, levels = _table_top(rng), []
    for _ in range(LEVELS):
        levels.append(np.rint(image).astype(np.uint8))
        side = image.shape[1] // 2
        image = image.reshape(3, side, 2, side, 2).mean((2, 4))
    return Room(tuple(levels), rng.choice(_WALLS), rng.uniform(90, 160, 3))


def within(values: Plane, span: tuple[float, float]) -> npt.NDArray[np.bool_]:
    """Return where values lie in a span."""
    return (values >= span[0]) & (values <= span[1])


def _table_top(rng: np.random.Generator) -> Plane:
    """Return the table, with a checked cloth on it, and the floor around it."""
    along = (np.arange(TEXELS, dtype=np.float32) + 0.5) * (MAP_M / TEXELS)
    x, y = along[:, None] + MAP_X0_M, along[None] + MAP_Y0_M
    image = np.empty((3, TEXELS, TEXELS), np.float32)
    image[:] = flat(FLOOR_RGB) * 0.85
    on_table = within(x, TABLE_X_M) & within(y, TABLE_Y_M)
    wood, plank = flat(rng.choice(_WOODS)), np.floor(x / PLANK_M).astype(int)  # along y
    tones = rng.uniform(0.9, 1.08, np.ptp(plank) + 1).astype(np.float32)
    fibres = 0.04 * _smooth_noise(rng, 256, 6) + 0.05 * _smooth_noise(rng, 40, 5)
    gap = np.where(np.abs(x - PLANK_M * np.rint(x / PLANK_M)) < GAP_M, 0.6, 1.0)
    np.copyto(image, wood * ((tones[plank - plank.min()] + fibres) * gap), where=on_table)
    checks = (np.floor(x / CHECK_M) + np.floor(y / CHECK_M)) % 2
    weave = 0.92 + 0.10 * checks + 0.025 * _smooth_noise(rng, 200, 200)
    on_cloth = within(x, CLOTH_X_M) & within(y, CLOTH_Y_M)
    np.copyto(image, flat(rng.choice(_CLOTHS)) * weave, where=on_cloth)
    image *= 1.06 - 0.5 * ((x - 0.25) ** 2 + y**2)  # the lamp hangs over the middle
    return np.clip(image, 12, 243)


def _smooth_noise(rng: np.random.Generator, rows: int, columns: int) -> Plane:
    """Return a texture-sized field from -1 to 1, linear between rows x columns random knots."""
    knots = rng.uniform(-1, 1, (rows, columns)).astype(np.float32)
    return _stretch(_stretch(knots).T).T


def _stretch(knots: Plane) -> Plane:
    """Return the rows interpolated linearly to as many as the texture has."""
    at = np.linspace(0, len(knots) - 1, TEXELS)
    low = np.minimum(at.astype(int), len(knots) - 2)
    part = (at - low).astype(np.float32)[:, None]
    return np.asarray(knots[low] + part * (knots[low + 1] - knots[low]))


def see_table(room: Room, camera: Camera) -> Plane:
    """Return what a camera above the table sees, planar: the table, and floor around it."""
    texture = room.table[_level(camera, finer=0)]
    side = texture.shape[1]
    scale = side / MAP_M
    to_texels = np.diag([scale, scale, 1.0])
    to_texels[:2, 2] = -MAP_X0_M * scale, -MAP_Y0_M * scale
    column, row = camera.around((slice(0, camera.height), slice(0, camera.width)), 0, 0)
    lines = (to_texels @ camera.table_homography()).tolist()
    x, y, below = (line[0] * column + (line[1] * row + line[2]) for line in lines)
    # Rays at or above the horizon get a tiny divisor and land on the texture's border: floor.
    np.divide(1.0, np.maximum(below, 1e-3), out=below)
    x *= below
    y *= below
    index = np.clip(x, 0, side - 1, out=x).astype(np.int32)
    index *= side
    index += np.clip(y, 0, side - 1, out=y).astype(np.int32)
    return np.asarray(texture.reshape(3, -1).take(index, 1), np.float32)


def see_room(room: Room, camera: Camera) -> tuple[Plane, Plane]:
    """Return what a fixed camera sees, planar and smooth-edged, and the depth in metres."""
    fine = _RAYS_PER_SIDE
    columns = (np.arange(camera.width * fine) + 0.5) / fine
    rows = (np.arange(camera.height * fine) + 0.5) / fine
    rays = camera.rays(columns[None], rows[:, None]).reshape(-1, 3)
    texture = room.table[_level(camera, finer=1)]
    colour, depth = _cast(room, texture, camera.eye, rays)
    image = colour.reshape(3, camera.height, fine, camera.width, fine).mean((2, 4))
    depth = depth.reshape(camera.height, fine, camera.width, fine)[:, 0, :, 0]
    return _soften(_soften(image, 1), 2).astype(np.float32), depth.astype(np.float32)


def _soften(image: Plane, axis: int) -> Plane:
    """Return an image blurred as by a lens: each pixel mixed with its neighbours on an axis."""
    index = np.arange(image.shape[axis])
    before, after = (image.take(index + step, axis, mode="clip") for step in (-1, 1))
    return np.asarray((image * 2 + before + after) / 4)


def _cast(room: Room, texture: Bytes, eye: Floats, rays: Floats) -> tuple[Floats, Floats]:
    """Return the colour (3, n) and depth (n,) at which each ray ends."""
    rays = np.where(np.abs(rays) < 1e-9, 1e-9, rays)
    exits = np.where(rays > 0, ROOM_HIGH_M - eye, ROOM_LOW_M - eye) / rays
    depth = exits.min(1)
    colour = _wall_colour(room, eye + depth[:, None] * rays, exits.argmin(1))
    scale = texture.shape[1] / MAP_M
    # The table is a slab: a ray that misses its top but hits its underside sees its edge.
    for height, light in ((-TABLE_THICKNESS_M, 0.5), (0.0, 1.0)):
        reach = (height - eye[2]) / rays[:, 2]
        x, y = eye[0] + reach * rays[:, 0], eye[1] + reach * rays[:, 1]
        hit = (reach > 0) & within(x, TABLE_X_M) & within(y, TABLE_Y_M)
        texels = (x[hit] - MAP_X0_M) * scale, (y[hit] - MAP_Y0_M) * scale
        row, column = (values.astype(np.int32) for values in texels)
        colour[:, hit] = light * texture[:, row, column]
        depth[hit] = reach[hit]
    return colour, depth


def _wall_colour(room: Room, at: Floats, axis: npt.NDArray[np.intp]) -> Floats:
    """Return the colour of points on the floor and the walls; `axis` is across the surface."""
    x, y, z = at.T
    light = 0.80 + 0.14 * np.clip((z + 0.74) / 2.0, 0, 1) + 0.05 * np.sin(0.9 * y + 0.6 * x)
    colour: Floats = room.wall_rgb[:, None] * light
    colour[:, z < -0.60] *= 0.72  # skirting
    frame = (axis == 0) & within(y, (-0.62, -0.16)) & within(z, (0.02, 0.62))
    sheet = frame & within(y, (-0.59, -0.19)) & within(z, (0.05, 0.59))
    colour[:, frame] = 74.0
    colour[:, sheet] = room.poster_rgb[:, None] * (1 + 0.25 * np.sin(9 * z[sheet] + 5 * y[sheet]))
    floor = (axis == 2) & (z < 0)
    tiles = (np.floor(x[floor] / 0.4) + np.floor(y[floor] / 0.4)) % 2
    colour[:, floor] = flat(FLOOR_RGB)[..., 0] * (0.94 + 0.05 * tiles)
    return colour


def _level(camera: Camera, *, finer: int) -> int:
    """Return the texture level whose texels are about the size of pixels mid-view, or finer."""
    slope = max(-float(camera.axes[2, 2]), 0.2)
    pixel_m = max(float(camera.eye[2]) / slope / camera.focal_px, 1e-6)
    level = round(np.log2(pixel_m / (MAP_M / TEXELS))) - finer
    return int(np.clip(level, 0, LEVELS - 1))


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
    livery = objects.LIVERIES[script.seed % len(objects.LIVERIES)]
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
    arm = objects.draw_arm(camera, view.poses.at(frame), view.livery)
    moved = objects.draw_object(camera, view.script.tracks[0], frame)
    resting = view.still.layers if view.still else _draw_resting(view.script, view.livery, camera)
    return sorted([*arm, *moved, *resting], key=lambda layer: -layer.far_m)


def _draw_resting(script: EpisodeScript, livery: Livery, camera: Camera) -> list[Layer]:
    """Return the layers of everything on the table that never moves, in painting order."""
    resting = [*objects.draw_stand(camera, livery)]
    for track in script.tracks[1:]:
        resting += objects.draw_object(camera, track, 0)
    return sorted(resting, key=lambda layer: -layer.far_m)


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
    pixels: Bytes = np.stack([*image.astype(np.uint8)], -1)
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
