# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc

import numpy as np
import pytest

from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frames import (
    CPU,
    PackedFrame,
    allocate,
    frame_layout,
    frame_of_arrays,
    unpack,
)
from robostream.decode.render import Renderer
from tests.decode.frames import noise, picture_of, through_rgb24

KINDS = {
    "yuv420p": "yuv420p",
    "yuvj420p": "yuvj420p",
    "yuv422p": "rgb",
    "yuv420p10le": "rgb",
    "gbrp": "rgb",
    "gray12le": "depth",
}


@pytest.mark.parametrize(("name", "kind"), KINDS.items())
@pytest.mark.parametrize("size", [(64, 48), (90, 50), (7, 6)])
def test_frames_of_any_format_become_one_of_three_layouts(
    name: str, kind: str, size: tuple[int, int]
) -> None:
    """4:2:0 and depth as they are, all else as RGB; planes are those the layout lists."""
    frame = noise(*size, name, seed=3)
    picture = picture_of(frame)
    arrays = picture.arrays()
    nbytes = [(a.shape[1] * a.itemsize, a.shape[0]) for a in arrays]

    assert (picture.layout.kind, picture.device) == (kind, CPU)
    assert nbytes == picture.layout.plane_sizes
    assert [a.ctypes.data for a in arrays] == [plane.address for plane in picture.planes]
    if kind == "rgb":
        np.testing.assert_array_equal(arrays, through_rgb24(frame))


def test_a_picture_keeps_its_memory_alive() -> None:
    """The frame it came from may be gone."""
    frame = noise(64, 48, "yuv420p", seed=4)
    picture = picture_of(frame)
    before = [array.copy() for array in picture.arrays()]
    del frame
    gc.collect()
    for seed in range(20):  # memory that was let go would be used again
        noise(64, 48, "yuv420p", seed)

    for array, copy in zip(picture.arrays(), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("kind", ["yuv420p", "rgb", "depth"])
def test_a_kept_picture_is_the_one_that_was_packed(kind: str) -> None:
    """Planes lie in a slot one after the other, whatever they are."""
    layout = frame_layout(kind, 48, 32, 2, 1)
    rng = np.random.default_rng(0)
    planes = [
        rng.integers(0, 256, (height, width)).astype(np.uint8)
        for width, height in layout.plane_sizes
    ]
    packed = PackedFrame(*allocate(layout.nbytes), layout)
    picture = frame_of_arrays(layout, planes)
    Renderer(load_ffmpeg()).pack(picture, packed)

    for array, wanted in zip(unpack(packed).arrays(), picture.arrays(), strict=True):
        np.testing.assert_array_equal(array, wanted)


def test_pictures_elsewhere_are_not_drawn_here() -> None:
    """An address on a device is none of this process's memory."""
    picture = picture_of(noise(64, 48, "yuv420p", 0))._replace(device="cuda:0")
    renderer = Renderer(load_ffmpeg())

    with pytest.raises(ValueError, match="lies on cuda:0"):
        renderer.draw(picture, np.zeros((3, 48, 64), np.uint8), file="")
    with pytest.raises(ValueError, match="lies on cuda:0"):
        renderer.pack(picture, PackedFrame(*allocate(picture.layout.nbytes), picture.layout))
