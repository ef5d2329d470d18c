# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import platform
import struct
import subprocess
import sys
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode.ffmpeg import load_ffmpeg
from robostream.decode.frames import PackedFrame, allocate
from robostream.decode.render import Renderer
from robostream.errors import VideoFileError
from tests.decode.conftest import local_engine
from tests.decode.frames import noise, picture_of, through_rgb24
from tests.fixture_datasets import FIXTURES, NAMES
from tests.servers.required import lacking

FORMATS = ("yuv420p", "yuvj420p", "yuv422p", "yuv444p", "yuv420p10le", "gray", "gbrp")


@pytest.fixture(scope="module", params=[True, False], ids=["FFmpeg's own calls", "numpy"])
def renderer(request: pytest.FixtureRequest) -> Renderer:
    """A renderer of either kind."""
    ffmpeg = load_ffmpeg()
    assert ffmpeg is not None
    return Renderer(ffmpeg if request.param else None)


@given(
    width=st.integers(8, 150),
    height=st.integers(8, 60),
    name=st.sampled_from(FORMATS),
    seed=st.integers(0, 9),
)
def test_pictures_equal_ffmpegs_rgb24(
    renderer: Renderer, width: int, height: int, name: str, seed: int
) -> None:
    """At every size and format, drawn at once or kept in between, no value differs."""
    frame = noise(width, height, name, seed)
    picture = picture_of(frame)
    layout = picture.layout
    at_once, kept = np.zeros((2, 3, height, width), np.uint8)
    packed = PackedFrame(*allocate(layout.nbytes), layout)
    renderer.draw(picture, at_once, file="")
    renderer.pack(picture, packed)
    renderer.draw_packed([packed], kept[None], file="")
    wanted = through_rgb24(frame)

    np.testing.assert_array_equal(at_once, wanted)
    np.testing.assert_array_equal(kept, wanted)


@pytest.mark.parametrize("colorspace", [1, 5, 6, 9])
@pytest.mark.parametrize("color_range", [1, 2])
def test_matrix_and_range_are_those_of_the_frame(
    renderer: Renderer, colorspace: int, color_range: int
) -> None:
    """A frame tagged BT.709 or full range is converted as such, drawn at once or kept."""
    frame = noise(48, 32, "yuv420p", 0)
    frame.colorspace, frame.color_range = colorspace, color_range
    picture = picture_of(frame)
    layout = picture.layout
    at_once, kept = np.zeros((2, 3, 32, 48), np.uint8)
    packed = PackedFrame(*allocate(layout.nbytes), layout)
    renderer.draw(picture, at_once, file="")
    renderer.pack(picture, packed)
    renderer.draw_packed([packed], kept[None], file="")

    np.testing.assert_array_equal(at_once, through_rgb24(frame))
    np.testing.assert_array_equal(kept, at_once)


@pytest.mark.parametrize(("colorspace", "red", "blue"), [(2, 0.299, 0.114), (1, 0.2126, 0.0722)])
@pytest.mark.parametrize("color_range", [0, 2])
def test_pictures_follow_the_formula(
    renderer: Renderer, colorspace: int, red: float, blue: float, color_range: int
) -> None:
    """BT.601, or BT.709 where so tagged, with the nearest chroma sample: within 3 levels of it."""
    frame = noise(64, 32, "yuv420p", 3)
    frame.colorspace, frame.color_range = colorspace, color_range
    y, u, v = (
        np.frombuffer(memoryview(p), np.uint8).reshape(p.height, -1)[:, : p.width].astype(float)
        for p in frame.planes
    )
    u, v = (c.repeat(2, axis=0).repeat(2, axis=1) - 128 for c in (u, v))
    if color_range == 0:
        y, u, v = (y - 16) * 255 / 219, u * 255 / 224, v * 255 / 224
    r, b = y + 2 * (1 - red) * v, y + 2 * (1 - blue) * u
    formula = np.stack([r, (y - red * r - blue * b) / (1 - red - blue), b])
    drawn = np.zeros((3, 32, 64), np.uint8)
    renderer.draw(picture_of(frame), drawn, file="")

    assert np.abs(drawn - formula.clip(0, 255)).max() < 3


@given(
    offset=st.integers(0, 40),
    pad=st.integers(0, 40),
    size=st.sampled_from([(16, 2), (48, 34), (64, 48), (272, 130)]),
)
def test_nothing_beside_the_slot_is_written(
    renderer: Renderer, offset: int, pad: int, size: tuple[int, int]
) -> None:
    """Slots may begin at any address and have rows of any stride; their neighbours stay."""
    width, height = size
    frame = noise(width, height, "yuv420p", offset)
    memory = np.full(offset + 3 * height * (width + pad) + 64, 9, np.uint8)
    rows = memory[offset : offset + 3 * height * (width + pad)].reshape(3, height, width + pad)
    slot = rows[:, :, :width]
    renderer.draw(picture_of(frame), slot, file="")

    np.testing.assert_array_equal(slot, through_rgb24(frame))
    slot[:] = 9
    assert np.all(memory == 9)


def test_an_unknown_colour_space_is_refused(renderer: Renderer) -> None:
    """Colours FFmpeg cannot convert are an error that names them, not a guess."""
    frame = noise(48, 32, "yuv420p", 0)
    frame.colorspace = 8

    with pytest.raises(VideoFileError, match=r"top\.mp4.*colour space 8"):
        renderer.draw(picture_of(frame), np.zeros((3, 32, 48), np.uint8), file="top.mp4")


def test_float_slots_may_have_any_stride(renderer: Renderer) -> None:
    """float32 slots inside wider rows get the same quotients."""
    frame = noise(48, 32, "yuv420p", 0)
    wide = np.zeros((3, 32, 60), np.float32)
    renderer.draw(picture_of(frame), wide[:, :, 3:51], file="")

    np.testing.assert_array_equal(
        wide[:, :, 3:51], through_rgb24(frame).astype(np.float32) / np.float32(255)
    )


def test_kept_colour_frames_take_half_of_rgb() -> None:
    """A 4:2:0 frame is kept as decoded."""
    assert picture_of(noise(64, 48, "yuv420p", 0)).layout.nbytes == 64 * 48 * 3 // 2


def test_a_slot_that_does_not_fit_is_refused(renderer: Renderer) -> None:
    """Wrong size, wrong number of channels, wrong type: each is named with what would fit."""
    frame = noise(48, 32, "yuv420p", 0)
    for slot in (
        np.zeros((3, 32, 64), np.uint8),
        np.zeros((1, 32, 48), np.uint8),
        np.zeros((3, 32, 48), np.int64),
    ):
        with pytest.raises(VideoFileError, match=r"top\.mp4.*48x32.*\(3, 32, 48\)"):
            renderer.draw(picture_of(frame), slot, file="top.mp4")


EXPECTED_VIDEOS = sorted(
    path.relative_to(FIXTURES).parts[0]
    for path in FIXTURES.glob("*/expected/items.npz")
    if path.parents[1].name in NAMES and (path.parents[1] / "videos").is_dir()
)


@pytest.mark.parametrize("dataset", EXPECTED_VIDEOS)
def test_pixels_are_those_of_torchcodec(dataset: str) -> None:
    """Every fixture picture LeRobot read with torchcodec is found, equal to the last bit."""
    root = FIXTURES / dataset
    with np.load(root / "expected" / "items.npz") as items:
        wanted = {
            name: items[name]
            for name in items.files
            if name.startswith("plain|") and items[name].dtype == np.uint8
        }
    cameras = _decode_cameras(root, {name.rsplit("|", 1)[1] for name in wanted})

    for name, picture in wanted.items():
        frames = cameras[name.rsplit("|", 1)[1]]
        off = np.abs(frames.astype(np.int16) - picture).max(axis=(1, 2, 3)).min()
        assert off == 0, name


def _decode_cameras(root: Path, keys: set[str]) -> dict[str, npt.NDArray[np.uint8]]:
    cameras = {}
    with local_engine() as engine:
        for key in keys:
            parts = []
            for path in sorted((root / "videos" / key).glob("*/*.mp4")):
                index = engine.files.get(str(path)).index
                config = index.configs[0]
                out = np.zeros((index.num_frames, 3, config.height, config.width), np.uint8)
                engine.read(str(path), np.arange(index.num_frames), out)
                parts.append(out)
            cameras[key] = np.concatenate(parts)
    return cameras


def test_only_pyavs_own_ffmpeg_is_called(tmp_path: Path) -> None:
    """Another FFmpeg in the process, as OpenCV brings one, is passed over: its colours differ."""
    if platform.machine() != "x86_64":
        lacking("X86_64", "this test patches x86-64 machine code in a library")
    stranger = tmp_path / "libswscale-0.so"
    stranger.write_bytes(_swscale_of_another_version())
    script = (
        "import contextlib, ctypes, sys, av, robostream.decode.ffmpeg as native\n"
        "ctypes.CDLL(sys.argv[1])\n"
        "mapped = set(open('/proc/self/maps').read().split())\n"
        "assert sys.argv[1] in mapped\n"
        "assert native._find_library('swscale', mapped)._name != sys.argv[1]\n"
        "with contextlib.suppress(OSError):\n"
        "    sys.exit(f\"{native._find_library('swscale', {sys.argv[1]})} is a stranger's\")\n"
        "assert native.load_ffmpeg() is not None\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(stranger)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stderr


def _swscale_of_another_version() -> bytes:
    """Return PyAV's libswscale with the number that swscale_version() returns exchanged."""
    mapped = Path("/proc/self/maps").read_text().split()
    path = next(word for word in mapped if "/libswscale" in word)
    major, minor, micro = av.library_versions["libswscale"]
    load_number = b"\xb8" + struct.pack("<I", major << 16 | minor << 8 | micro)
    content = Path(path).read_bytes()
    assert content.count(load_number) == 1
    return content.replace(load_number, b"\xb8" + struct.pack("<I", 6 << 16))
