# SPDX-License-Identifier: Apache-2.0
"""Whether the times in a table are those of its frames: a wrong one is another frame's picture."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.errors import DataFileError


def check_times(
    timestamps: npt.NDArray[np.floating[Any]],
    frame_index: npt.NDArray[np.integer[Any]],
    fps: float,
    tolerance_s: float,
    where: str,
) -> None:
    """Raise DataFileError unless each frame's time is frame_index / fps. Pure.

    Tables store times in 32 bits, which from about 1000 s on are coarser than the usual tolerance,
    so a time may be off by the tolerance and one step of these 32 bits.

    Args:
        timestamps: Seconds since the episode began.
        frame_index: The frames' numbers in the episode.
        fps: Frames per second.
        tolerance_s: How far a picture's time may be from the table's.
        where: The file and the episode, for the message.
    """
    wanted_s = frame_index / float(fps)
    steps_s = np.spacing(wanted_s.astype(np.float32)).astype(np.float64)
    near = np.abs(timestamps - wanted_s) <= tolerance_s + steps_s
    if near.all():
        return
    first = int(np.argmin(near))
    raise DataFileError(
        f"{where}: frame {frame_index[first]} has timestamp {timestamps[first]:.6g} s, want "
        f"frame_index / fps = {wanted_s[first]:.6g} s within {tolerance_s} s; "
        f"{np.count_nonzero(~near)} of {len(near)} frames are off{_hint(timestamps, fps)}. Their "
        "pictures would be those of other frames. Correct fps in info.json if it is wrong, copy "
        "the file again if it is damaged, or raise tolerance_s if such times are meant."
    )


def _hint(timestamps: npt.NDArray[np.floating[Any]], fps: float) -> str:
    """Return what even steps between the times say about the fps, if anything."""
    steps = np.diff(timestamps.astype(np.float64))
    if not steps.size or not steps.min() > 0 or steps.max() > 1.01 * steps.min():
        return ""
    found = 1 / steps.mean()
    return f" (the steps between them are those of {found:.6g} fps, info.json says {fps:g})"
