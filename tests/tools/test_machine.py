# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from robostream.tools.machine import Gpu, advise_device, explain_import


@pytest.mark.parametrize(
    ("images_per_s", "cores", "size", "gop", "choice"),
    [
        (1_700, 16, (256, 256), 2, "cpu"),
        (1_700, 1, (256, 256), 2, "cuda"),
        (1_500, 2, (256, 256), 250, "cuda"),
        (400, 4, (1280, 720), 2, "cuda"),
        (400, 16, (1280, 720), 250, "cpu"),
    ],
)
def test_the_faster_device_is_recommended(
    images_per_s: float, cores: int, size: tuple[int, int], gop: float, choice: str
) -> None:
    """The advice has both rates."""
    advice = advise_device(images_per_s, cores, *size, gop)

    assert f"video_decode_device='{choice}'" in advice
    assert f"{cores} cores here decode about {images_per_s * cores:,.0f}" in advice


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        (Gpu(False, "580.1", True, ("A card",)), "built without CUDA"),
        (Gpu(True, None, False, ()), "no NVIDIA driver"),
        (Gpu(True, "580.1", False, ("A card",)), "NVIDIA_DRIVER_CAPABILITIES"),
        (Gpu(True, "580.1", True, ("A card",)), "None"),
    ],
)
def test_the_obstacle_to_gpu_decoding_is_named(gpu: Gpu, words: str) -> None:
    """FFmpeg, the driver and its video library are all required."""
    assert words in str(gpu.obstacle)


def test_the_cause_of_a_failed_import_is_found() -> None:
    """It is the linker's line, not the errors around it; a silent crash has words too."""
    trace = (
        "Traceback (most recent call last):\n"
        "OSError: libavutil.so.59: cannot open shared object file: No such file or directory\n"
        "RuntimeError: Could not load libtorchcodec."
    )

    assert explain_import(trace).startswith("OSError: libavutil.so.59")
    assert explain_import("RuntimeError: no") == "RuntimeError: no"
    assert explain_import("") == "importing it crashes the process"
