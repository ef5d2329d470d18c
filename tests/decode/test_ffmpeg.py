# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import copy
import ctypes
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robostream.decode import ffmpeg as native
from robostream.decode.ffmpeg import Ffmpeg, is_proven, load_ffmpeg
from robostream.decode.render import Renderer
from tests.decode.frames import noise, picture_of, through_rgb24

KINDS = ("yuv420p", "yuvj420p")
COLORSPACES = (0, 1, 2, 4, 5, 6, 7, 9)


def changed(function: str, call: Callable[..., Any]) -> Ffmpeg:
    """Return PyAV's FFmpeg with one function exchanged; `call` gets the true one first."""
    ffmpeg = load_ffmpeg()
    assert ffmpeg is not None
    other, true = copy.copy(ffmpeg), getattr(ffmpeg, function)
    setattr(other, function, lambda *given: call(true, *given))
    return other


def flip_a_bit(address: int) -> None:
    """Change one value by one."""
    ctypes.c_uint8.from_address(address).value ^= 1


def draw_off_by_one(convert: Callable[..., int], *given: Any) -> int:
    """Convert, and get the last value of the green plane wrong."""
    done = convert(*given)
    to, lines = given[-2:]
    flip_a_bit(to[0] + done * lines[0] - 1)
    return done


def copy_off_by_one(copy_out: Callable[..., int], *given: Any) -> int:
    """Copy a frame, and get its first value wrong."""
    done = copy_out(*given)
    flip_a_bit(given[0])
    return done


@pytest.mark.parametrize("color_range", [0, 1, 2])
@pytest.mark.parametrize("colorspace", COLORSPACES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_libraries_of_pyav_are_proven(kind: str, colorspace: int, color_range: int) -> None:
    """All formats, tags and widths that are drawn directly are, with the PyAV installed here."""
    ffmpeg = load_ffmpeg()
    assert ffmpeg is not None

    for width in (16, 48, 256, 640, 1920):
        assert is_proven(ffmpeg, kind, width, (colorspace, color_range))


@pytest.mark.parametrize("kind", KINDS)
def test_a_proven_library_draws(kind: str) -> None:
    """After the proof, FFmpeg is called for every picture."""
    calls = []
    ffmpeg = changed("convert", lambda convert, *given: (calls.append(1), convert(*given))[1])
    frame = noise(64, 48, kind, 0)
    drawn = np.zeros((3, 48, 64), np.uint8)
    renderer = Renderer(ffmpeg)
    renderer.draw(picture_of(frame), drawn, file="")
    proving = len(calls)
    renderer.draw(picture_of(frame), drawn, file="")

    assert len(calls) == proving + 1


@pytest.mark.parametrize(
    "ffmpeg",
    [
        pytest.param(lambda: changed("convert", draw_off_by_one), id="one value differs"),
        pytest.param(lambda: changed("copy", copy_off_by_one), id="kept otherwise"),
        pytest.param(lambda: changed("convert", lambda *_: 0), id="nothing done"),
        pytest.param(lambda: changed("open", lambda *_: None), id="not set up"),
        pytest.param(lambda: changed("matrix", lambda matrix, _: matrix(1)), id="always BT.709"),
    ],
)
def test_a_library_that_draws_otherwise_is_refused(
    ffmpeg: Callable[[], Ffmpeg], caplog: pytest.LogCaptureFixture
) -> None:
    """FFmpeg is not called then, the pictures are still right, and the log says so once."""
    caplog.set_level(logging.INFO, logger="robostream.decode.ffmpeg")
    library = ffmpeg()
    frame = noise(64, 48, "yuv420p", 0)
    for _ in range(3):
        drawn = np.zeros((3, 48, 64), np.uint8)
        Renderer(library).draw(picture_of(frame), drawn, file="")

        np.testing.assert_array_equal(drawn, through_rgb24(frame))
    assert not is_proven(library, "yuv420p", 64, (2, 0))
    assert len(caplog.records) == 1
    assert "yuv420p of width 64" in caplog.text


def test_a_colour_space_pyav_refuses_is_not_proven() -> None:
    """If PyAV cannot convert a format either, FFmpeg is not called for it."""
    ffmpeg = load_ffmpeg()
    assert ffmpeg is not None

    assert not is_proven(ffmpeg, "yuv420p", 64, (8, 1))


def test_a_library_without_the_functions_is_not_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If a function is missing in the library, that is noticed at once and logged."""
    caplog.set_level(logging.INFO, logger="robostream.decode.ffmpeg")
    monkeypatch.setattr(native, "_find_library", lambda *_: ctypes.CDLL(None))

    assert load_ffmpeg.__wrapped__() is None
    assert "cannot be called directly" in caplog.text


def test_a_library_of_another_version_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the very version that PyAV names is called."""
    strange = {"libswscale": (1, 2, 3), "libavutil": (1, 2, 3)}
    monkeypatch.setattr(native.av, "library_versions", strange)

    assert load_ffmpeg.__wrapped__() is None
