# SPDX-License-Identifier: Apache-2.0
"""A re-encoded video has the frames and times of its original, of any kind."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from robostream.config import RECODE_CRF
from robostream.errors import VideoFileError, WriteError
from robostream.tools.recode_videos import RecodeSpec, VideoJob, check_copy, encode_video
from tests.decode.videos import FPS, KINDS, encode, reference
from tests.parameters import long_except

COLOUR_KINDS = [kind for kind in KINDS if kind != "depth"]
SHORT_KINDS = COLOUR_KINDS[::5]


def recoded(original: Path, spec: RecodeSpec) -> Path:
    """Re-encode a video beside it, and check the copy."""
    copy = original.with_name("copy.mp4")
    encode_video(VideoJob(original, copy, 0, Fraction(FPS), spec.encoder(1)), lambda: None)
    check_copy(original, copy)
    return copy


def psnr_db(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> float:
    error = np.mean((one.astype(np.float64) - other) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-9)))


def assert_same_frames(original: Path, copy: Path, *, at_least_db: float) -> None:
    """Check that both files have the same number of frames, times, and order."""
    was_times, was = reference(original)
    times, frames = reference(copy)
    errors = np.array([[np.abs(a.astype(int) - b).mean() for b in was] for a in frames])

    assert times == was_times
    assert errors.diagonal().tolist() == errors.min(1).tolist()
    assert min(map(psnr_db, was, frames)) >= at_least_db


@pytest.mark.parametrize("kind", long_except(COLOUR_KINDS, *SHORT_KINDS))
def test_frames_and_times_stay_the_same(kind: str, tmp_path: Path) -> None:
    """B-frames, open GOPs, edit lists, late starts, changing rates, 10 bits, 4:4:4, full range."""
    original = KINDS[kind](tmp_path)
    copy = recoded(original, RecodeSpec("h264", crf=10))

    # Colour at half the resolution is what 4:4:4 loses.
    assert_same_frames(original, copy, at_least_db=20 if kind == "444" else 33)


@pytest.mark.parametrize("gop", long_except([1, 2, 7], 2))
@pytest.mark.parametrize("codec", RECODE_CRF)
def test_key_frames_have_the_requested_distance(codec: str, gop: int, tmp_path: Path) -> None:
    """Every codec keeps frames and times, has a key frame every `gop`, and no B-frames."""
    original = KINDS["h264_bframes"](tmp_path)
    copy = recoded(original, RecodeSpec(codec, gop=gop))
    with av.open(str(copy)) as container:
        packets = [packet for packet in container.demux(video=0) if packet.size]

    assert_same_frames(original, copy, at_least_db=25)
    assert [packet.is_keyframe for packet in packets] == [n % gop == 0 for n in range(48)]
    assert all(packet.pts == packet.dts for packet in packets)


@pytest.mark.parametrize("codec", RECODE_CRF)
@pytest.mark.parametrize("color_range", [1, 2])
def test_colour_tags_are_kept(codec: str, color_range: int, tmp_path: Path) -> None:
    """BT.709 in limited or full range keeps matrix, range and appearance."""
    options = {
        "g": "6",
        "colorspace": "bt709",
        "color_primaries": "bt709",
        "color_trc": "bt709",
        "color_range": str(color_range),
    }
    pix_fmt = "yuvj420p" if color_range == 2 else "yuv420p"
    original = encode(tmp_path / "tagged.mp4", "libx264", options, pix_fmt=pix_fmt)
    copy = recoded(original, RecodeSpec(codec, crf=10))
    with av.open(str(copy)) as container:
        frame = next(container.decode(video=0))

    assert (frame.colorspace, frame.color_primaries, frame.color_trc) == (1, 1, 1)
    assert frame.color_range == color_range
    assert_same_frames(original, copy, at_least_db=28)


def test_rgb_becomes_yuv_that_readers_understand(tmp_path: Path) -> None:
    """A video without a matrix gets the one that readers assume."""
    original = encode(tmp_path / "rgb.mp4", "libx264rgb", {"g": "6", "crf": "10"}, pix_fmt="rgb24")
    copy = tmp_path / "copy.mp4"
    spec = RecodeSpec("h264", crf=10)
    encode_video(VideoJob(original, copy, 0, Fraction(FPS), spec.encoder(1)), lambda: None)

    assert check_copy(original, copy) > 36
    assert_same_frames(original, copy, at_least_db=20)


@pytest.mark.parametrize("codec", RECODE_CRF)
def test_a_single_frame_is_a_video_too(codec: str, tmp_path: Path) -> None:
    """The duration of its frame follows from the rate."""
    original = encode(tmp_path / "one.mp4", "libx264", {}, count=1)
    copy = recoded(original, RecodeSpec(codec))
    with av.open(str(copy)) as container:
        stream = container.streams.video[0]

        assert stream.duration * stream.time_base == Fraction(1, FPS)
    assert_same_frames(original, copy, at_least_db=30)


def test_a_damaged_original_leaves_nothing(tmp_path: Path) -> None:
    """The error names the file, and no copy is made."""
    original = KINDS["h264_bframes"](tmp_path)
    content = bytearray(original.read_bytes())
    middle = content.index(b"mdat") + 4 + (content.rindex(b"moov") - content.index(b"mdat")) // 2
    content[middle : middle + 400] = bytes(400)
    original.write_bytes(content)

    with pytest.raises(VideoFileError, match=r"plain\.mp4"):
        recoded(original, RecodeSpec())
    assert [path.name for path in tmp_path.iterdir()] == ["plain.mp4"]


def test_a_copy_of_another_video_fails_the_check(tmp_path: Path) -> None:
    """Other times and sizes do not pass."""
    (tmp_path / "a").mkdir()
    original = KINDS["h264_g2"](tmp_path / "a")
    shorter = encode(tmp_path / "shorter.mp4", "libx264", {}, count=47)
    shifted = encode(tmp_path / "shifted.mp4", "libx264", {}, pts=[20 * t + 1 for t in range(48)])
    larger = encode(tmp_path / "larger.mp4", "libx264", {}, size=(128, 64))
    for copy in (shorter, shifted):
        with pytest.raises(WriteError, match="at the times of"):
            check_copy(original, copy)
    with pytest.raises(WriteError, match=r"want \(96, 64.*found \(128, 64"):
        check_copy(original, larger)

    assert check_copy(original, original) == 100
