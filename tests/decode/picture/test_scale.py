# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode.picture.layout import layout_of
from robostream.decode.picture.native import load_ffmpeg
from robostream.decode.picture.render import Renderer
from robostream.decode.picture.scale import FrameScaler, Size, scale_picture
from tests.decode.picture.frames import noise, through_rgb24

# Planes of fewer than 4 rows or columns FFmpeg does not filter.
SIDES = st.integers(4, 120)
SIZES = st.tuples(SIDES, SIDES)
# FFmpeg gives the weight that falls beyond a border to the pixel at it, torch to all that are left.
BORDER_LEVELS = 26


def triangle(old: int, new: int) -> npt.NDArray[np.float64]:
    """Return the weights of a bilinear filter that is widened when it shrinks, (new, old)."""
    centres = (np.arange(new) + 0.5) * old / new - 0.5
    reach = max(old / new, 1)
    weights = np.clip(1 - np.abs(np.arange(old) - centres[:, None]) / reach, 0, None)
    return weights / weights.sum(axis=1, keepdims=True)


def random_plane(size: Size, seed: int) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (1, *size)).astype(np.uint8)


def draw(frame: av.VideoFrame) -> npt.NDArray[np.uint8]:
    layout = layout_of(frame)
    out = np.zeros(layout.shape, np.uint8)
    Renderer(load_ffmpeg()).draw(frame, layout, out, file="some.mp4")
    return out


def scale(frame: av.VideoFrame, size: Size | None) -> av.VideoFrame:
    return FrameScaler(Renderer(load_ffmpeg())).scale(frame, size, file="some.mp4")


def planes(frame: av.VideoFrame) -> list[npt.NDArray[Any]]:
    return [
        np.frombuffer(memoryview(plane), np.uint8).reshape(plane.height, -1)[:, : plane.width]
        for plane in frame.planes
    ]


@given(old=SIZES, new=SIZES, seed=st.integers(0, 99))
def test_brightness_is_filtered_by_a_triangle(old: Size, new: Size, seed: int) -> None:
    """Inside within a level of exact arithmetic; at the borders within what is stated."""
    plane = random_plane(old, seed)
    found = scale_picture(plane, new)
    exact = triangle(old[0], new[0]) @ plane[0] @ triangle(old[1], new[1]).T
    off = np.abs(found[0] - exact)
    # As far as the filter of a pixel reaches over the border.
    margins = [-(-max(a, b) // (2 * a)) for a, b in zip(old, new, strict=True)]

    assert off.max() <= BORDER_LEVELS
    inside = off[margins[0] : -margins[0], margins[1] : -margins[1]]
    assert inside.size == 0 or inside.max() <= 1.01


@given(old=SIZES, new=SIZES, level=st.integers(0, 255))
def test_a_flat_picture_stays_flat(old: Size, new: Size, level: int) -> None:
    """No brightness is lost or made, black and white included."""
    found = scale_picture(np.full((3, *old), level, np.uint8), new)

    assert np.array_equal(found, np.full((3, *new), level, np.uint8))


@given(size=SIZES, seed=st.integers(0, 99))
def test_the_size_it_has_changes_nothing(size: Size, seed: int) -> None:
    """Neither a picture nor a frame; no size means its own."""
    picture = random_plane(size, seed)
    frame = noise(size[1], size[0], "yuv420p", seed)

    assert scale_picture(picture, size) is picture
    assert scale(frame, size) is frame
    assert scale(frame, None) is frame


@given(old=SIZES, new=SIZES, seed=st.integers(0, 99))
def test_measured_values_take_the_nearest(old: Size, new: Size, seed: int) -> None:
    """Every value is one that was there, and of the place its middle falls into."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 60_000, (1, *old)).astype(np.uint16)
    found = scale_picture(values, new)
    rows, columns = (
        np.floor((np.arange(n) + 0.5) * o / n).astype(int) for o, n in zip(old, new, strict=True)
    )

    assert found.dtype == np.uint16
    assert np.array_equal(found[0], values[0][np.ix_(rows, columns)])


@pytest.mark.parametrize("new", [(24, 32), (33, 47), (100, 130), (64, 31), (4, 4)])
@pytest.mark.parametrize("kind", ["yuv420p", "yuvj420p"])
def test_planes_of_420_are_scaled_each_by_itself(kind: str, new: Size) -> None:
    """Format and colour tags stay, so that colours come out as of a video of that size."""
    frame = noise(96, 64, kind, seed=1)
    frame.colorspace, frame.color_range = 1, 2
    scaled = scale(frame, new)

    assert (scaled.height, scaled.width, scaled.format.name) == (*new, kind)
    assert (scaled.colorspace, scaled.color_range) == (1, 2)
    for before, after in zip(planes(frame), planes(scaled), strict=True):
        assert np.array_equal(after, scale_picture(before[None], after.shape)[0])


@pytest.mark.parametrize("new", [(24, 32), (33, 47), (100, 130)])
@pytest.mark.parametrize(
    ("kind", "size"), [("yuv444p", (64, 96)), ("yuv420p10le", (64, 96)), ("yuv420p", (63, 96))]
)
def test_all_else_is_scaled_as_the_finished_picture(kind: str, size: Size, new: Size) -> None:
    """Full chroma, more bits and odd heights come out as their RGB scaled."""
    frame = noise(size[1], size[0], kind, seed=2)
    wanted = scale_picture(np.ascontiguousarray(through_rgb24(frame)), new)

    assert np.array_equal(draw(scale(frame, new)), wanted)


def test_depth_frames_take_the_nearest() -> None:
    """Codes stay codes of the source, and the format stays."""
    codes = np.arange(64 * 96, dtype=np.uint16).reshape(64, 96) % 4096
    scaled = scale(av.VideoFrame.from_ndarray(codes, format="gray12le"), (21, 40))

    assert scaled.format.name == "gray12le"
    assert np.array_equal(scaled.to_ndarray()[None], scale_picture(codes[None], (21, 40)))
