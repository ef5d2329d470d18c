# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import DecodedFrame
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frames import frame_layout
from robostream.decode.render import Renderer, Size, scale_values
from tests.decode.frames import noise, picture_of, through_rgb24

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


def draw(picture: DecodedFrame) -> npt.NDArray[np.uint8]:
    out = np.zeros(picture.layout.shape, np.uint8)
    Renderer(load_ffmpeg()).draw(picture, out, file="some.mp4")
    return out


def scale(picture: DecodedFrame, size: Size) -> DecodedFrame:
    return Renderer(load_ffmpeg()).scale(picture, size, file="some.mp4")


@given(old=SIZES, new=SIZES, seed=st.integers(0, 99))
def test_brightness_is_filtered_by_a_triangle(old: Size, new: Size, seed: int) -> None:
    """Inside within a level of exact arithmetic; at the borders within what is stated."""
    plane = random_plane(old, seed)
    found = scale_values(plane, new)
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
    found = scale_values(np.full((3, *old), level, np.uint8), new)

    assert np.array_equal(found, np.full((3, *new), level, np.uint8))


@given(size=SIZES, seed=st.integers(0, 99))
def test_the_size_it_has_changes_nothing(size: Size, seed: int) -> None:
    """Neither values nor a decoded picture."""
    picture = random_plane(size, seed)
    decoded = picture_of(noise(size[1], size[0], "yuv420p", seed))

    assert scale_values(picture, size) is picture
    assert scale(decoded, size) is decoded


@given(old=SIZES, new=SIZES, seed=st.integers(0, 99))
def test_measured_values_take_the_nearest(old: Size, new: Size, seed: int) -> None:
    """Every value is one that was there, and of the place its middle falls into."""
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 60_000, (1, *old)).astype(np.uint16)
    found = scale_values(values, new)
    rows, columns = (
        np.floor((np.arange(n) + 0.5) * o / n).astype(int) for o, n in zip(old, new, strict=True)
    )

    assert found.dtype == np.uint16
    assert np.array_equal(found[0], values[0][np.ix_(rows, columns)])


@pytest.mark.parametrize("new", [(24, 32), (34, 47), (100, 130), (64, 31), (4, 4)])
@pytest.mark.parametrize("kind", ["yuv420p", "yuvj420p"])
def test_planes_of_420_are_scaled_each_by_itself(kind: str, new: Size) -> None:
    """Kind and colour tags stay, so that colours come out as of a video of that size."""
    frame = noise(96, 64, kind, seed=1)
    frame.colorspace, frame.color_range = 1, 2
    picture = picture_of(frame)
    scaled = scale(picture, new)

    assert scaled.layout is frame_layout(kind, new[1], new[0], 1, 2)
    for before, after in zip(picture.arrays(), scaled.arrays(), strict=True):
        assert np.array_equal(after, scale_values(before[None], after.shape)[0])


@pytest.mark.parametrize(
    ("kind", "size", "new"),
    [
        ("yuv444p", (64, 96), (24, 32)),
        ("yuv420p10le", (64, 96), (100, 130)),
        ("yuv420p", (63, 96), (24, 32)),
        ("yuv420p", (64, 96), (33, 47)),
    ],
)
def test_all_else_is_scaled_as_the_finished_picture(kind: str, size: Size, new: Size) -> None:
    """Full chroma, more bits and odd heights, old or new, come out as their RGB scaled."""
    frame = noise(size[1], size[0], kind, seed=2)
    wanted = scale_values(np.ascontiguousarray(through_rgb24(frame)), new)

    assert np.array_equal(draw(scale(picture_of(frame), new)), wanted)


def test_depth_takes_the_nearest() -> None:
    """Codes stay codes of the source."""
    codes = np.arange(64 * 96, dtype=np.uint16).reshape(64, 96) % 4096
    picture = picture_of(av.VideoFrame.from_ndarray(codes, format="gray12le"))
    (scaled,) = scale(picture, (21, 40)).arrays()

    assert np.array_equal(scaled[None], scale_values(codes[None], (21, 40)))
