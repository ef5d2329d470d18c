# SPDX-License-Identifier: Apache-2.0
"""What cameras see of the room without the robot.

A fixed camera casts a ray per pixel at the table, the floor and the walls, once per episode. The
camera on the wrist reads the table's texture through a homography, in every frame.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from robostream.tools.synth.scene.arm import Floats
from robostream.tools.synth.scene.layers import Plane, flat
from robostream.tools.synth.scene.optics import Camera
from robostream.tools.synth.scene.texture import (
    FLOOR_RGB,
    LEVELS,
    MAP_M,
    MAP_X0_M,
    MAP_Y0_M,
    TABLE_X_M,
    TABLE_Y_M,
    TEXELS,
    Room,
    Words,
    unpack,
    within,
)

TABLE_THICKNESS_M = 0.035
ROOM_LOW_M, ROOM_HIGH_M = np.array([-1.0, -1.7, -0.74]), np.array([2.4, 1.7, 1.7])
_RAYS_PER_SIDE = 2  # of a pixel


def see_table(room: Room, camera: Camera) -> Plane:
    """Return what a camera above the table sees of it, planar; beyond the table there is floor."""
    texture = room.table[_level(camera, finer=0)]
    side = len(texture)
    scale = side / MAP_M
    to_texels = np.diag([scale, scale, 1.0])
    to_texels[:2, 2] = -MAP_X0_M * scale, -MAP_Y0_M * scale
    column = np.arange(camera.width, dtype=np.float32)[None] + 0.5
    row = np.arange(camera.height, dtype=np.float32)[:, None] + 0.5
    lines = (to_texels @ camera.table_homography()).tolist()
    x, y, below = (line[0] * column + (line[1] * row + line[2]) for line in lines)
    # Rays at or above the horizon get a tiny divisor and land on the texture's border: floor.
    np.divide(1.0, np.maximum(below, 1e-3), out=below)
    x *= below
    y *= below
    index = np.clip(x, 0, side - 1, out=x).astype(np.int32)
    index *= side
    index += np.clip(y, 0, side - 1, out=y).astype(np.int32)
    return unpack(texture.reshape(-1)[index])


def see_room(room: Room, camera: Camera) -> tuple[Plane, Plane]:
    """Return what a fixed camera sees, planar and smooth-edged, and the depth in metres."""
    fine = _RAYS_PER_SIDE
    columns = (np.arange(camera.width * fine) + 0.5) / fine
    rows = (np.arange(camera.height * fine) + 0.5) / fine
    rays = camera.rays(*np.broadcast_arrays(columns[None], rows[:, None])).reshape(-1, 3)
    texture = room.table[_level(camera, finer=1)]
    colour, depth = _cast(room, texture, camera.eye, rays)
    image = colour.reshape(3, camera.height, fine, camera.width, fine).mean((2, 4))
    depth = depth.reshape(camera.height, fine, camera.width, fine)[:, 0, :, 0]
    return _soften(_soften(image, 1), 2).astype(np.float32), depth.astype(np.float32)


def _soften(image: Plane, axis: int) -> Plane:
    """Return an image as a lens shows it, each pixel mixed with its neighbours along an axis."""
    last = image.shape[axis] - 1
    place = np.arange(last + 1)
    before, after = np.maximum(place - 1, 0), np.minimum(place + 1, last)
    return np.asarray((image * 2 + image.take(before, axis) + image.take(after, axis)) / 4)


def _cast(room: Room, texture: Words, eye: Floats, rays: Floats) -> tuple[Floats, Floats]:
    """Return the colour (3, n) and the depth (n,) of what each ray meets."""
    rays = np.where(np.abs(rays) < 1e-9, 1e-9, rays)
    exits = np.where(rays > 0, ROOM_HIGH_M - eye, ROOM_LOW_M - eye) / rays
    depth = exits.min(1)
    colour = _wall_colour(room, eye + depth[:, None] * rays, exits.argmin(1))
    # The table is a slab: where a ray misses its top but meets its underside, there is the edge.
    for height, light in ((-TABLE_THICKNESS_M, 0.5), (0.0, 1.0)):
        reach = (height - eye[2]) / rays[:, 2]
        x, y = eye[0] + reach * rays[:, 0], eye[1] + reach * rays[:, 1]
        hit = (reach > 0) & within(x, TABLE_X_M) & within(y, TABLE_Y_M)
        colour[:, hit] = light * _table_colour(texture, x[hit], y[hit])
        depth[hit] = reach[hit]
    return colour, depth


def _table_colour(texture: Words, x: Floats, y: Floats) -> Plane:
    """Return the colour of points on the table top."""
    scale = len(texture) / MAP_M
    row, column = (x - MAP_X0_M) * scale, (y - MAP_Y0_M) * scale
    return unpack(texture[row.astype(np.int32), column.astype(np.int32)])


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
