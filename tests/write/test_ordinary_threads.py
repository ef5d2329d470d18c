# SPDX-License-Identifier: Apache-2.0
"""Encoding leaves the priorities of threads alone, also where root records."""

from __future__ import annotations

import contextlib
import os
from fractions import Fraction
from pathlib import Path

import numpy as np

from robostream.write.encoder import VideoEncoder, VideoSpec
from robostream.write.encoder_options import VideoEncoderConfig


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
