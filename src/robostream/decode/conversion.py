# SPDX-License-Identifier: Apache-2.0
"""What PyAV's colour converter understands differs between its versions."""

from __future__ import annotations

import functools
from typing import Any

import av
from av.video.reformatter import VideoReformatter


@functools.cache
def one_thread() -> dict[str, Any]:
    """Return the option that keeps a conversion on the thread that asks for it.

    Other threads want the other cores. PyAV 15 converts on one thread anyway and does not know it.
    """
    probe = av.VideoFrame(16, 16, "rgb24")
    try:
        VideoReformatter().reformat(probe, format="yuv420p", threads=1)
    except TypeError:
        return {}
    return {"threads": 1}
