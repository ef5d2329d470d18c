# SPDX-License-Identifier: Apache-2.0
"""Whether a copy of a video shows what its original shows, and when."""

from __future__ import annotations

import math
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from robostream.errors import WriteError
from robostream.tools.recode.frames import To420, VideoFrames, gamut_tags

_FULL_RANGE = 2
# What is said of equal pictures, whose PSNR is infinite, which JSON cannot say.
_EQUAL_DB = 100.0


def check_copy(original: Path, copy: Path) -> float:
    """Return the lower PSNR, in dB, of the first and last picture (brightness only).

    Raises:
        WriteError: The copy has other frames, times, sizes or colour tags, or does not decode.
    """
    was, made = VideoFrames(original), VideoFrames(copy)
    _check_times(was, made)
    last = was.index.num_frames - 1
    return min(_compare(was, made, number) for number in sorted({0, last}))


def _check_times(was: VideoFrames, made: VideoFrames) -> None:
    want, found = was.index, made.index
    same = (
        want.time_base == found.time_base
        and want.num_frames == found.num_frames
        and bool(np.all(want.pts.astype(np.int64) == found.pts.astype(np.int64)))
    )
    if not same:
        (first_s, last_s), (found_first_s, found_last_s) = want.ends_s(), found.ends_s()
        raise _differ(
            made,
            f"{want.num_frames} frames from {first_s:.6f} s to {last_s:.6f} s, at the times of "
            f"{was.path}",
            f"{found.num_frames} from {found_first_s:.6f} s to {found_last_s:.6f} s",
        )


def _compare(was: VideoFrames, made: VideoFrames, number: int) -> float:
    to_420 = To420()
    one = range(number, number + 1)
    ((want,), (found,)) = (map(to_420, frames.some(one)) for frames in (was, made))
    if _coding(want) != _coding(found):
        raise _differ(made, f"{_coding(want)} as in {was.path}", f"{_coding(found)}")
    return _psnr(_brightness(want), _brightness(found))


def _coding(frame: av.VideoFrame) -> tuple[int, int, bool, int, int, int]:
    """Return size and colour tags; range unspecified is taken for limited, as readers do."""
    return (
        frame.width,
        frame.height,
        frame.color_range == _FULL_RANGE,
        int(frame.colorspace),
        *gamut_tags(frame),
    )


def _brightness(frame: av.VideoFrame) -> npt.NDArray[np.float64]:
    plane = frame.planes[0]
    rows = np.frombuffer(memoryview(plane), np.uint8).reshape(-1, plane.line_size)
    return rows[: frame.height, : frame.width].astype(np.float64)


def _psnr(want: npt.NDArray[np.float64], found: npt.NDArray[np.float64]) -> float:
    error = float(np.mean((want - found) ** 2))
    return 10 * math.log10(255**2 / error) if error else _EQUAL_DB


def _differ(made: VideoFrames, want: str, found: str) -> WriteError:
    return WriteError(
        f"{made.path}: want {want}; found {found}. Delete this file and run the command again, or "
        "choose another codec."
    )
