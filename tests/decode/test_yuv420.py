# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import DecodedFrame
from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frames import PackedFrame, frame_layout
from robostream.decode.render import (
    Renderer,
    drawing_of,
    label_of,
    open_yuv,
    yuv_bytes,
)
from robostream.errors import VideoFileError
from tests.decode.frames import noise, picture_of

# FFmpeg's vector code is what the numbers are taken from; its C code rounds otherwise.
LEVELS = 0 if platform.machine() in ("x86_64", "AMD64") else 3
REPO = Path(__file__).parents[2]
COLORSPACES = (0, 1, 2, 4, 5, 6, 7, 9)


def parcel_of(picture: DecodedFrame) -> npt.NDArray[np.uint8]:
    """Return a picture as it travels."""
    layout = picture.layout
    parcel = np.zeros(yuv_bytes(layout.width, layout.height), np.uint8)
    slot = PackedFrame(parcel[: layout.nbytes], parcel.ctypes.data, layout)
    renderer = Renderer(load_ffmpeg())
    renderer.pack(picture, slot)
    renderer.write_label(parcel, label_of(layout, (layout.height, layout.width), "top.mp4"))
    return parcel


def draw(parcel: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.int64]:
    """Draw a parcel in whole numbers, as `drawing_of` says."""
    labels, y, chroma = open_yuv(parcel[None], size)
    how = drawing_of(int(labels[0]))
    light = ((8 * y[0].astype(int) - how.black) * how.y) >> 16
    u, v = (
        (8 * plane.astype(int) - 1024).repeat(2, axis=0).repeat(2, axis=1)[: size[0], : size[1]]
        for plane in chroma[0]
    )
    red, blue = (v * how.v_red) >> 16, (u * how.u_blue) >> 16
    green = ((u * how.u_green) >> 16) + ((v * how.v_green) >> 16)
    return (light + np.stack([red, green, blue])).clip(0, 255)


def difference(
    colorspace: int, color_range: int, *, kind: str = "yuv420p", size: tuple[int, int] = (48, 64)
) -> npt.NDArray[np.int64]:
    """Return by how much a parcel of noise, drawn, differs from what FFmpeg draws here."""
    height, width = size
    frame = noise(width, height, kind, seed=width)
    frame.colorspace, frame.color_range = colorspace, color_range
    picture = picture_of(frame)
    wanted = np.zeros((3, height, width), np.uint8)
    Renderer(load_ffmpeg()).draw(picture, wanted, file="top.mp4")
    return np.abs(draw(parcel_of(picture), size) - wanted)


@given(
    width=st.integers(8, 100),
    half_height=st.integers(4, 40),
    kind=st.sampled_from(["yuv420p", "yuvj420p"]),
    colorspace=st.sampled_from(COLORSPACES),
    color_range=st.sampled_from([0, 1, 2]),
)
def test_parcels_hold_all_it_takes_to_draw_as_ffmpeg_does(
    width: int, half_height: int, kind: str, colorspace: int, color_range: int
) -> None:
    """Every format, width and colour coding: the numbers give FFmpeg's pictures, bit for bit."""
    found = difference(colorspace, color_range, kind=kind, size=(2 * half_height, width))

    assert found.max() <= LEVELS


def test_ffmpegs_plain_code_rounds_otherwise_by_no_more_than_is_stated() -> None:
    """Where FFmpeg has no vector code for a processor: 3 levels at most, about half on average."""
    program = """
import numpy as np
from pathlib import Path
from robostream.decode import ffmpeg as native
from tests.decode.test_yuv420 import difference

mapped = set(Path("/proc/self/maps").read_text().split())
native._find_library("avutil", mapped).av_force_cpu_flags(0)
found = [difference(colorspace, color_range) for colorspace in (1, 2, 9) for color_range in (1, 2)]
print(max(d.max() for d in found), np.mean([d.mean() for d in found]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPO
    )
    most, mean = map(float, done.stdout.split())

    assert 0 < most <= 3
    assert mean < 0.7


def test_a_parcel_is_half_of_rgb() -> None:
    """Beside the planes there is only a label."""
    assert yuv_bytes(256, 256) == 256 * 256 * 3 // 2 + 64


@pytest.mark.parametrize(
    ("layout", "says"),
    [
        (frame_layout("rgb", 64, 48, 0, 0), r"top\.mp4: the frames are not 8-bit 4:2:0"),
        (frame_layout("yuv420p", 64, 48, 8, 0), r"top\.mp4: colour space 8 cannot"),
    ],
)
def test_what_cannot_be_drawn_elsewhere_is_refused(layout: object, says: str) -> None:
    """Before it travels, with the file's name."""
    with pytest.raises(VideoFileError, match=says):
        label_of(layout, (48, 64), "top.mp4")  # type: ignore[arg-type]
