# SPDX-License-Identifier: Apache-2.0
"""Which software is installed: versions, FFmpeg's libraries and decoders."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import av

from robostream.decode import has_codec
from robostream.tools.child_processes import WITHOUT_CURRENT_FOLDER

PACKAGES = (
    "robostream",
    "av",
    "torch",
    "huggingface_hub",
    "hf_xet",
    "fsspec",
    "pyarrow",
    "numpy",
)
# The codecs of LeRobot datasets, and the decoder that decodes each without a GPU.
DECODERS = {"AV1": "libdav1d", "H.264": "h264", "HEVC": "hevc", "VP9": "vp9"}
_NOT_INSTALLED = "not installed"
# Messages of the dynamic linker. A line with one of them names the cause of a failed import.
_LINKER_MARKS = ("cannot open shared object file", "undefined symbol")


@dataclass(frozen=True, slots=True)
class Software:
    """The software that is installed.

    Attributes:
        python: Its version.
        platform: Operating system and processor.
        packages: Version by name; "not installed" for one that is missing.
        ffmpeg: The version of the FFmpeg inside PyAV.
        ffmpeg_libraries: Version by name.
        decoders: The decoder of each usual codec; None for one this FFmpeg lacks.
        torchcodec: Its version, "not installed", or why it cannot be imported.
    """

    python: str
    platform: str
    packages: dict[str, str]
    ffmpeg: str
    ffmpeg_libraries: dict[str, str]
    decoders: dict[str, str | None]
    torchcodec: str


def check_software() -> Software:
    """Return the software that is installed. Starts a process if torchcodec is."""
    return Software(
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
        packages={name: _version(name) for name in PACKAGES},
        ffmpeg=str(av.ffmpeg_version_info),
        ffmpeg_libraries={
            name: ".".join(map(str, numbers)) for name, numbers in av.library_versions.items()
        },
        decoders={
            codec: name if has_codec(name, "r") else None for codec, name in DECODERS.items()
        },
        torchcodec=_torchcodec(),
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return _NOT_INSTALLED


def _torchcodec() -> str:
    """Return the version of torchcodec, or why it cannot be used.

    It is imported in another process, because its FFmpeg is not PyAV's, and because a build that
    does not fit this torch may crash the process.
    """
    if importlib.util.find_spec("torchcodec") is None:
        return _NOT_INSTALLED
    found = _version("torchcodec")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_CURRENT_FOLDER + "import torchcodec.decoders"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return found
    return f"{found}, cannot be imported: {explain_import(done.stderr)}"


def explain_import(message: str) -> str:
    """Return the line of a failed import's traceback that says what is missing. Pure."""
    # Indented lines are quoted code.
    lines = [line for line in message.splitlines() if line.strip() and not line[0].isspace()]
    causes = [line for line in lines if any(mark in line for mark in _LINKER_MARKS)]
    return (causes or lines[-1:] or ["importing it crashes the process"])[0]
