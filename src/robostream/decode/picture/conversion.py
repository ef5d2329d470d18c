# SPDX-License-Identifier: Apache-2.0
"""Colour conversion through PyAV, with the same result in every version of it.

From version 17 on, PyAV's converter reads the colour tags of a frame. Earlier versions take every
frame for BT.601, and for full range only formats called yuvj, so the colours of a BT.709 video are
up to 55 levels off. To these versions the tags are given as options.
"""

from __future__ import annotations

import errno
import functools
import os
from typing import Any

import av
from av.video.reformatter import VideoReformatter

_LIMITED_RANGE, _FULL_RANGE = 1, 2
_BT709, _BT601 = 1, 5
# RGB, BT.709, unspecified, FCC, BT.470BG, BT.601, SMPTE 240M, BT.2020: what FFmpeg converts.
COLORSPACES = (0, 1, 2, 4, 5, 6, 7, 9)


def convert(reformatter: VideoReformatter, frame: av.VideoFrame, name: str) -> av.VideoFrame:
    """Return a frame in another format, by its colour tags, without using other threads."""
    options = one_thread() or _tags_of(frame)
    return reformatter.reformat(frame, format=name, **options)


@functools.cache
def one_thread() -> dict[str, Any]:
    """Return the option that keeps a conversion on the thread that asks for it.

    The other cores are busy with other work. PyAV before 17 always converts on one thread and does
    not know this option.
    """
    probe = av.VideoFrame(16, 16, "rgb24")
    try:
        VideoReformatter().reformat(probe, format="yuv420p", threads=1)
    except TypeError:
        return {}
    return {"threads": 1}


def is_full_range(name: str, color_range: int) -> bool:
    """Return whether the values of a format so tagged go from 0 to 255. Pure."""
    return name.startswith("yuvj") or color_range == _FULL_RANGE


def _tags_of(frame: av.VideoFrame) -> dict[str, int]:
    """Return the colour tags of a frame as options, for PyAV before 17."""
    if frame.format.is_rgb:
        return {}
    if frame.colorspace not in COLORSPACES:
        raise av.FFmpegError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))
    is_full = is_full_range(frame.format.name, frame.color_range)
    return {
        "src_colorspace": frame.colorspace,
        # RGB has no such matrix. But PyAV uses the source's only if the two options differ.
        "dst_colorspace": _BT601 if frame.colorspace == _BT709 else _BT709,
        "src_color_range": _FULL_RANGE if is_full else _LIMITED_RANGE,
        "dst_color_range": _FULL_RANGE,
    }
