# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from robostream.tools.diagnose.machine import advise_device


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
