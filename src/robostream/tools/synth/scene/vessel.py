# SPDX-License-Identifier: Apache-2.0
"""Upright round things, open (cups, bowls, plates) or solid (stands), and shadows of such things.

A level circle is nearly an ellipse in the image. In coordinates that make this ellipse the unit
circle, the outline of a vessel, and of its shadow, is that of a rod from one circle to another.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robostream.tools.synth.scene.arm import Floats, above
from robostream.tools.synth.scene.layers import (
    Box,
    Grid,
    Layer,
    Plane,
    Rgb,
    blend,
    coverage,
    flat,
    rod,
    shadow_layer,
)
from robostream.tools.synth.scene.optics import LIGHT, NEAREST_M, Camera


@dataclass(frozen=True, slots=True)
class Vessel:
    """A cone cut off at both ends, standing upright on `base`."""

    base: Floats  # (3,): the middle of its underside
    height_m: float
    foot_m: float  # radius below
    rim_m: float  # radius above
    rgb: Rgb
    inner_rgb: Rgb | None = None  # of what the rim encloses; None is solid, all of one colour
    band_rgb: Rgb | None = None  # around its middle
    opening: float = 0.97  # share of the rim's radius that is enclosed
    hollow: float = 0.0  # how much the light varies inside; 0 is flat


@dataclass(frozen=True, slots=True)
class VesselLayers:
    """A vessel as drawn."""

    whole: Layer
    near_wall: Layer  # to paint over what is inside
    depth_m: float


def draw_vessel(grid: Grid, camera: Camera, vessel: Vessel) -> VesselLayers | None:
    """Return the layers of a vessel, None if the camera does not see it."""
    rim = above(vessel.base, vessel.height_m)
    disc = _see_disc(grid, camera, rim, vessel.base, radius_m=vessel.rim_m, margin_px=1.0)
    return None if disc is None else _shade(vessel, disc)


def upright_shadow(
    grid: Grid, camera: Camera, ends: Floats, *, radius_m: float, blur_m: float
) -> Layer | None:
    """Return the shadow of something round and upright, from its foot to its top on the table."""
    margin_px = camera.focal_px * blur_m / max(float(camera.project(ends[0])[2]), NEAREST_M)
    disc = _see_disc(grid, camera, ends[0], ends[1], radius_m=radius_m, margin_px=margin_px)
    if disc is None:
        return None
    inside = rod(disc.p, disc.q, disc.end, (1.0, disc.end_radius)).inside
    blur = max(blur_m / radius_m, 1 / disc.unit_px)
    return shadow_layer(disc.box, inside, blur=blur, darkness=0.36)


@dataclass(frozen=True, slots=True)
class _Disc:
    """Pixels in the coordinates of a level circle, its axes parallel to those of the table."""

    box: Box
    p: Plane
    q: Plane
    end: tuple[float, float]  # the centre of the other circle
    end_radius: float  # of the other circle if it is as large as the first
    unit_px: float
    depth_m: float


def _see_disc(
    grid: Grid, camera: Camera, centre: Floats, end: Floats, *, radius_m: float, margin_px: float
) -> _Disc | None:
    """Return the pixels around two level circles, None if the camera does not see them."""
    offsets = np.array([[0.0, 0.0, 0.0], [radius_m, 0.0, 0.0], [0.0, radius_m, 0.0], end - centre])
    here, east, north, there = camera.project(centre + offsets).tolist()
    if min(here[2], there[2]) < NEAREST_M:
        return None
    a, b = east[0] - here[0], east[1] - here[1]
    c, d = north[0] - here[0], north[1] - here[1]
    reach = max(abs(a) + abs(c), abs(b) + abs(d)) + margin_px
    box = grid.box([(at[0], at[1], reach) for at in (here, there)])
    area = a * d - b * c
    if box is None or abs(area) < 1e-3:
        return None
    x, y = grid.around(box, here[0], here[1])
    end_x, end_y = there[0] - here[0], there[1] - here[1]
    return _Disc(
        box=box,
        p=x * (d / area) - y * (c / area),
        q=y * (a / area) - x * (b / area),
        end=((d * end_x - c * end_y) / area, (a * end_y - b * end_x) / area),
        end_radius=here[2] / there[2],
        unit_px=abs(area) ** 0.5,
        depth_m=(here[2] + there[2]) / 2,
    )


def _shade(vessel: Vessel, disc: _Disc) -> VesselLayers:
    """Return the layers of a vessel from the coordinates of its pixels."""
    light_x, light_y = 0.6 * LIGHT[0], 0.6 * LIGHT[1]
    foot = disc.end_radius * vessel.foot_m / vessel.rim_m
    outline = rod(disc.p, disc.q, disc.end, (1.0, foot))
    from_centre = np.sqrt(disc.p * disc.p + disc.q * disc.q)
    enclosed = coverage((vessel.opening - from_centre) * disc.unit_px)
    rim = coverage((1.0 - from_centre) * disc.unit_px)
    # A rod ends where its thin end begins: the rim of a flat dish lies beyond that.
    alpha = np.maximum(coverage(outline.inside * disc.unit_px), rim)
    wall_light = outline.off_x * light_x + outline.off_y * light_y + 0.78
    inner_light = 0.9 - vessel.hollow * (disc.p * light_x + disc.q * light_y)
    in_band = (np.abs(outline.along - 0.5) < 0.16).astype(np.float32)
    paint = blend(flat(vessel.rgb), flat(vessel.band_rgb or vessel.rgb), in_band)
    wall = blend(paint * wall_light, flat(vessel.rgb) * 1.08, rim)
    whole = blend(wall, flat(vessel.inner_rgb or vessel.rgb) * inner_light, enclosed)
    return VesselLayers(
        whole=Layer(disc.box, alpha, whole, disc.depth_m),
        near_wall=Layer(disc.box, alpha * (1.0 - enclosed), wall, disc.depth_m),
        depth_m=disc.depth_m,
    )
