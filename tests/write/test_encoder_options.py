# SPDX-License-Identifier: Apache-2.0
"""Options become FFmpeg's, wrong ones raise, and thread priorities do not change."""

from __future__ import annotations

import contextlib
import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robostream.meta import DepthCoding
from robostream.write import DepthEncoderConfig
from robostream.write.encoder import VideoEncoder, VideoSpec
from robostream.write.encoder_options import VideoEncoderConfig, check_encoder, ffmpeg_options
from tests.write.recording import NAMES, quick_writer


def test_the_default_is_lerobots() -> None:
    """AV1 by SVT, a key frame every 2 frames, crf 30, preset 12."""
    assert ffmpeg_options(VideoEncoderConfig()) == {
        "g": "2",
        "crf": "30",
        "preset": "12",
        "svtav1-params": "fast-decode=0",
        "flags": "+cgop",
    }


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"codec": "av1", "threads": 3, "fast_decode": 9}, {"svtav1-params": "fast-decode=2:lp=3"}),
        ({"codec": "av1", "extra_options": {"svtav1-params": "tune=0"}},
         {"svtav1-params": "fast-decode=0:tune=0"}),
        ({"codec": "libx264", "threads": 2, "fast_decode": 1},
         {"tune": "fastdecode", "threads": "2"}),
        ({"codec": "h264", "preset": "slow", "g": None, "crf": 18.5},
         {"preset": "slow", "crf": "18.5"}),
        ({"codec": "h264", "extra_options": {"crf": 1, "bf": 3}}, {"crf": "30", "bf": "3"}),
        ({"codec": "hevc"}, {"x265-params": "log-level=error"}),
        ({"codec": "hevc", "extra_options": {"x265-params": "lossless=1"}},
         {"x265-params": "lossless=1:log-level=error"}),
        ({"codec": "h264_nvenc", "preset": "p4"}, {"rc": "0", "qp": "30", "preset": "p4"}),
    ],
)  # fmt: skip
def test_options_are_spelled_as_the_codec_wants_them(
    given: dict[str, Any], wanted: dict[str, str]
) -> None:
    """The same words mean the same for every codec; extra options never replace a field."""
    options = ffmpeg_options(VideoEncoderConfig(**given))

    assert wanted.items() <= options.items()
    assert ("g" in options) == (given.get("g", 2) is not None)


@pytest.mark.parametrize("codec", ["libsvtav1", "h264", "hevc"])
def test_options_come_back_from_info_json(codec: str) -> None:
    """Resuming a dataset encodes as before, from what info.json says."""
    options = VideoEncoderConfig(codec=codec, g=7, crf=21, extra_options={"bf": 2})
    recorded = {"video.codec": {"libsvtav1": "av1"}.get(codec, codec), **options.to_info()}

    assert VideoEncoderConfig.from_info(recorded) == options


def test_depth_options_come_back_from_info_json() -> None:
    """The coding of distances is part of them: without it the codes mean nothing."""
    options = DepthEncoderConfig(coding=DepthCoding(depth_max_m=4.0, use_log=False))
    recorded = {"video.codec": "hevc", "video.pix_fmt": "gray12le", **options.to_info()}

    assert DepthEncoderConfig.from_info(recorded) == options


@pytest.mark.parametrize(
    ("options", "size", "message"),
    [
        ({"codec": "h264"}, (63, 64), "need even numbers"),
        ({"codec": "h264", "preset": "sluggish"}, (64, 64), "sluggish"),
        ({"codec": "libsvtav1", "crf": 90}, (64, 64), "90"),
        ({"codec": "h264", "extra_options": {"bframez": 2}}, (64, 64), "no option bframez"),
    ],
)
def test_options_that_an_encoder_rejects_raise_at_once(
    options: dict[str, Any], size: tuple[int, int], message: str
) -> None:
    """Sizes and options are tried before the first frame, not after the first episode."""
    with pytest.raises(ValueError, match=message):
        check_encoder(VideoEncoderConfig(**options), width=size[0], height=size[1])


def test_unknown_codecs_raise() -> None:
    """The error lists what there is."""
    with pytest.raises(ValueError, match="libsvtav1, h264, hevc"):
        VideoEncoderConfig(codec="divx")


def test_auto_finds_an_encoder_that_works() -> None:
    """An encoder of hardware this machine lacks is not chosen, though FFmpeg has it."""
    chosen = VideoEncoderConfig(codec="auto")
    check_encoder(chosen, width=256, height=256)

    assert chosen.codec != "auto"


@pytest.mark.parametrize(
    ("camera", "shape"),
    [("colour", (64, 62, 3)), ("depth", (64, 32, 1))],
)
def test_cameras_too_narrow_for_x265_raise(
    tmp_path: Path, camera: str, shape: tuple[int, int, int]
) -> None:
    """x265 would damage the process's memory; the message names camera, limit, size and cure."""
    features = {
        "wide": {"dtype": "video", "shape": (32, 64, shape[2]), "names": NAMES},
        camera: {"dtype": "video", "shape": shape, "names": NAMES},
    }
    size = f"{shape[1]}x{shape[0]}"
    wanted = rf"^{camera}: want images at least 64 pixels wide .* found {size} .*dtype \"image\""
    with pytest.raises(ValueError, match=wanted):
        quick_writer(tmp_path / "a", features, encoder=VideoEncoderConfig(codec="libx265"))

    assert not (tmp_path / "a").exists()


def test_the_error_of_an_encoder_names_its_camera(tmp_path: Path) -> None:
    """With several cameras, the message names the one that the encoder rejects."""
    features = {
        "good": {"dtype": "video", "shape": (64, 64, 3), "names": NAMES},
        "odd": {"dtype": "video", "shape": (64, 63, 3), "names": NAMES},
    }
    with pytest.raises(ValueError, match=r"^odd: the encoder h264 refuses 63x64"):
        quick_writer(tmp_path / "a", features)


def policies() -> set[int]:
    """The scheduling policies of all threads of this process."""
    found = set()
    for name in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):  # it has ended since
            found.add(os.sched_getscheduler(int(name)))
    return found


def test_no_thread_becomes_a_real_time_thread(tmp_path: Path) -> None:
    """SVT-AV1 would make its own threads and ours such, and starve all others."""
    options = VideoEncoderConfig(codec="libsvtav1")
    spec = VideoSpec(64, 64, Fraction(30), options)
    before = policies()
    encoder = VideoEncoder(tmp_path / "video.mp4", spec)
    for _ in range(3):
        encoder.add(np.zeros((64, 64, 3), np.uint8))

    assert policies() == before
    assert encoder.finish().num_frames == 3
    assert policies() == before
