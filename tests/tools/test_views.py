# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from robostream.errors import WriteError
from robostream.tools.views import (
    Cell,
    beside,
    draw_sheet,
    draw_thumbnails,
    save_sheet,
    spread_frames,
)


@given(length=st.integers(1, 10_000), count=st.integers(1, 40))
def test_frames_are_the_middles_of_equal_parts(length: int, count: int) -> None:
    """The frame that is shown in the middle of each part; every frame of a short episode."""
    frames = spread_frames(length, count)
    parts = min(length, count)

    assert len(frames) == parts
    for part, frame in enumerate(frames):
        assert 2 * parts * frame <= (2 * part + 1) * length < 2 * parts * (frame + 1)
    assert length > count or frames == list(range(length))


@given(length=st.integers(3, 3000), third=st.integers(1, 5))
def test_every_third_frame_is_the_middle_of_three_parts(length: int, third: int) -> None:
    """So a narrow page can leave out the others and stay aligned, to half a frame."""
    many, few = spread_frames(length, 3 * third), spread_frames(length, third)

    assert length < 3 * third or many[1::3] == few


def test_thumbnails_keep_proportions_and_colours() -> None:
    """Half red, half blue, in the wanted width."""
    image = np.zeros((3, 40, 80), np.uint8)
    image[0, :, :40], image[2, :, 40:] = 255, 255
    (small,) = draw_thumbnails([image], width=20)

    assert small.size == (20, 10)
    assert (small.getpixel((2, 5)), small.getpixel((17, 5))) == ((255, 0, 0), (0, 0, 255))


@pytest.mark.parametrize("dtype", ["float32", "uint16", "uint8"])
def test_depth_is_light_where_it_is_near(dtype: str) -> None:
    """One range of colours for all images, so that they can be compared."""
    near, far = (np.full((1, 8, 8), value, dtype) for value in (20, 200))
    drawn = [np.asarray(image).mean() for image in draw_thumbnails([near, far], width=8)]

    assert drawn[0] > 150 > 50 > drawn[1]


def test_equal_distances_are_drawn() -> None:
    """A range of nothing divides nothing."""
    (drawn,) = draw_thumbnails([np.full((1, 4, 4), 7.0, np.float32)], width=4)

    assert len(np.unique(np.asarray(drawn).reshape(-1, 3), axis=0)) == 1


def test_a_sheet_holds_every_cell(tmp_path: Path) -> None:
    """Each thumbnail stands unscaled on the sheet, in rows of its own."""
    colours = ["#ff0000", "#00ff00", "#0000ff", "#ff00ff"]
    cells = [Cell(Image.new("RGB", (30, 20), colour), colour) for colour in colours]
    path = tmp_path / "sheet.png"
    save_sheet(path, draw_sheet("a title", [("first", cells[:2]), ("second", cells[2:])]))
    with Image.open(path) as image:
        found = np.asarray(image.convert("RGB"))
    places = [np.argwhere((found == cell.image.getpixel((0, 0))).all(axis=-1)) for cell in cells]

    assert [len(place) for place in places] == [600] * 4
    tops = [int(place[0, 0]) for place in places]
    assert tops[0] == tops[1] < tops[2] == tops[3]


def test_a_long_title_ends_before_the_margin() -> None:
    """A task may be longer than a sheet of one frame is wide."""
    cell = Cell(Image.new("RGB", (20, 20)), "0.0 s")
    sheet = np.asarray(draw_sheet("a long task " * 40, [("camera" * 60, [cell])]).convert("L"))

    assert (sheet[:, -16:] == 255).all()
    assert (sheet[:40, -60:-16] < 128).any()


def test_images_stand_side_by_side() -> None:
    """Cameras of unlike sizes."""
    joined = beside([Image.new("RGB", (10, 5), "red"), Image.new("RGB", (6, 8), "blue")])

    assert joined.size == (18, 8)
    assert joined.getpixel((17, 7)) == (0, 0, 255)


def test_a_sheet_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    (tmp_path / "file").write_text("")
    with pytest.raises(WriteError, match=r"cannot write .*a\.png"):
        save_sheet(tmp_path / "file/a.png", Image.new("RGB", (1, 1)))
