# SPDX-License-Identifier: Apache-2.0
"""What the machine has for decoding: software versions, FFmpeg's decoders, NVIDIA GPUs."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import av
from av.codec.hwaccel import hwdevices_available

from robostream.decode import has_codec
from robostream.tools.child_processes import WITHOUT_CURRENT_FOLDER

_PACKAGES = ("robostream", "av", "torch", "huggingface_hub", "hf_xet", "fsspec", "pyarrow", "numpy")
# Extras and what they bring; see pyproject.toml.
_OPTIONAL = ("accelerate", "botocore", "lerobot", "matplotlib", "torchdata")
# The codecs of LeRobot datasets, and the CPU decoder of each.
DECODERS = {"AV1": "libdav1d", "H.264": "h264", "HEVC": "hevc", "VP9": "vp9"}
_NOT_INSTALLED = "not installed"
# Messages of the dynamic linker, which name the cause of a failed import.
_LINKER_MARKS = ("cannot open shared object file", "undefined symbol")
_DRIVER_VERSION = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"\b\d{3,}\.\d+(?:\.\d+)?\b")
# From the capability table in NVIDIA's NVDEC application note (Video Codec SDK 13.0).
AV1_CARDS = (
    "NVIDIA lists AV1 decoders for Ampere except the A100, for Ada and for Blackwell; none for the "
    "A100 and for Hopper (H100, H200), which decode H.264, HEVC and VP9"
)
# Images/s that a loader with eight workers got from an H200's NVDEC, H.264 (docs/gpu.md): the most
# pixels of a frame, the most frames of a GOP, images/s.
_NVDEC = ((256 * 256, 1 << 30, 8_400), (1 << 30, 16, 2_900), (1 << 30, 1 << 30, 2_300))


def describe_software() -> dict[str, Any]:
    """Return what is installed. Starts a process for torchcodec."""
    return {
        **{name: _version(name) for name in (*_PACKAGES, *_OPTIONAL)},
        "torchcodec": _torchcodec(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "ffmpeg": str(av.ffmpeg_version_info),
        "decoders": {
            c: name if has_codec(name, "r") else "missing" for c, name in DECODERS.items()
        },
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _NOT_INSTALLED


def _torchcodec() -> str:
    """Return the version of torchcodec, or why it cannot be used.

    A child process imports it: its FFmpeg is not PyAV's, and a build for another torch may crash.
    """
    if importlib.util.find_spec("torchcodec") is None:
        return _NOT_INSTALLED
    found = _version("torchcodec")
    command = [sys.executable, "-c", WITHOUT_CURRENT_FOLDER + "import torchcodec.decoders"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return found
    return f"{found}, cannot be imported: {explain_import(done.stderr)}"


def explain_import(message: str) -> str:
    """Return the line of a failed import's traceback that says what is missing. Pure."""
    # Indented lines are quoted code.
    lines = [line for line in message.splitlines() if line.strip() and not line[0].isspace()]
    causes = [line for line in lines if any(mark in line for mark in _LINKER_MARKS)]
    return (causes or lines[-1:] or ["importing it crashes the process"])[0]


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a machine has for decoding on a GPU."""

    ffmpeg_has_cuda: bool  # whether the FFmpeg inside PyAV supports NVIDIA's decoders
    driver: str | None  # its version, "of unknown version", or None without a driver
    has_video_library: bool  # whether the driver's video library (libnvcuvid) can be loaded
    cards: tuple[str, ...]  # the names of the GPUs that torch sees

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


def advise_device(
    images_per_s: float, cores: int, width: int, height: int, gop_frames: float
) -> str:
    """Return advice on where to decode a video that the GPU supports. Pure.

    `images_per_s` is what one core decodes, `gop_frames` the distance between key frames.
    """
    on_gpu = next(
        rate
        for most_pixels, most_frames, rate in _NVDEC
        if width * height <= most_pixels and gop_frames <= most_frames
    )
    on_cpu = images_per_s * cores
    choice = "cuda" if on_gpu > on_cpu else "cpu"
    return (
        f"The GPU can decode this video. A loader with eight workers got about {on_gpu:,} images/s "
        f"of videos as large or larger from an H200 (docs/gpu.md); {cores} cores here decode about "
        f"{on_cpu:,.0f} of this one. "
        f"So choose video_decode_device={choice!r}, and divide both by the ranks that share them."
    )
