# SPDX-License-Identifier: Apache-2.0
"""What a machine has for decoding on an NVIDIA GPU (NVDEC): FFmpeg, the driver, the cards."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

from av.codec.hwaccel import hwdevices_available

_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
# From the table of capabilities in NVIDIA's NVDEC application note (Video Codec SDK 13.0).
AV1_CARDS = (
    "NVIDIA lists AV1 decoders for Ampere except the A100, for Ada and for Blackwell; none for the "
    "A100 and for Hopper (H100, H200), which decode H.264, HEVC and VP9"
)


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a machine has for decoding on a GPU.

    Attributes:
        ffmpeg_has_cuda: Whether the FFmpeg inside PyAV was built for NVIDIA's decoders.
        driver: The version of NVIDIA's driver, "of unknown version", or None without one.
        has_video_library: Whether the driver's part for video (libnvcuvid) can be loaded.
        cards: The names of the GPUs torch sees.
    """

    ffmpeg_has_cuda: bool
    driver: str | None
    has_video_library: bool
    cards: tuple[str, ...]

    @property
    def obstacle(self) -> str | None:
        """Why no video can be decoded on a GPU here; None if nothing is known to prevent it."""
        if not self.ffmpeg_has_cuda:
            return "the FFmpeg inside PyAV was built without CUDA; install PyAV from PyPI"
        if self.driver is None:
            return "there is no NVIDIA driver"
        if not self.has_video_library:
            return (
                "the driver's video library (libnvcuvid.so.1) is missing; in a container, set "
                "NVIDIA_DRIVER_CAPABILITIES=compute,utility,video"
            )
        return None


@dataclass(frozen=True, slots=True)
class GpuDecoding:
    """Whether one video could be decoded on the GPU, and how that was found."""

    works: bool
    reason: str


def check_gpu() -> Gpu:
    """Return what this machine has for decoding on a GPU."""
    import torch

    cards = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    return Gpu(
        ffmpeg_has_cuda="cuda" in hwdevices_available(),
        driver=_driver(),
        has_video_library=_can_load("libnvcuvid.so.1"),
        cards=tuple(torch.cuda.get_device_name(card) for card in cards),
    )


def _driver() -> str | None:
    if _DRIVER_VERSION.is_file():
        found = _VERSION.search(_DRIVER_VERSION.read_text())
        return found[0] if found else "of unknown version"
    # In some containers /proc/driver is hidden, but the driver's library can be loaded.
    return "of unknown version" if _can_load("libcuda.so.1") else None


def _can_load(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True
