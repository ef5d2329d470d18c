# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import CodecConfig, FrameIndex
from robostream.decode.frame_index import compact
from robostream.errors import FrameTimestampError


def index_of(pts: list[int], time_base: Fraction = Fraction(1, 15360)) -> FrameIndex:
    """Return an index of frames at these times, each a GOP of its own."""
    count = len(pts)
    return FrameIndex(
        file="videos/top.mp4",
        file_bytes=100 * count,
        time_base=time_base,
        pts=compact(np.array(pts, np.int64)),
        packets=None,
        frames=None,
        byte_offsets=np.arange(count) * 100,
        sizes=np.full(count, 100),
        starts=np.arange(count),
        start_frames=np.arange(count),
        configs=(CodecConfig("h264", b"", 64, 64),),
        start_configs=np.zeros(count, np.uint8),
    )


@given(
    steps=st.lists(st.integers(400, 700), min_size=1, max_size=60),
    picks=st.lists(st.integers(0, 59), min_size=1, max_size=20),
    first=st.integers(0, 10**12),
    error=st.floats(-0.9e-4, 0.9e-4),
)
def test_times_near_a_frame_find_it(
    steps: list[int], picks: list[int], first: int, error: float
) -> None:
    """At any place in a file of years, times within the tolerance find the nearest frame."""
    index = index_of((first + np.cumsum(steps)).tolist())
    frames = np.array(picks) % index.num_frames
    wanted = index.times_s()[frames] + error
    # Beyond some years, 64 bits cannot tell such small differences apart.
    tolerance_s = 1e-4 + float(np.spacing(wanted.max())) * 2

    found = index.match(wanted, tolerance_s=tolerance_s, where="top, episode 3")

    assert found.dtype == np.int64
    assert found.tolist() == frames.tolist()


def test_the_tolerance_is_inclusive() -> None:
    """A time exactly as far away as the tolerance is accepted, one a little further is not."""
    index = index_of([0, 2], Fraction(1, 2))

    assert index.match(np.array([0.25]), tolerance_s=0.25, where="").tolist() == [0]
    with pytest.raises(FrameTimestampError):
        index.match(np.array([0.26]), tolerance_s=0.25, where="")


def test_times_late_in_a_file_are_compared_in_64_bits() -> None:
    """Two hours into a file, where 32-bit seconds are 0.5 ms apart, 0.1 ms still counts."""
    index = index_of(list(range(0, 512 * 30 * 7300, 512)))
    frame = 7200 * 30 + 17
    time_s = 7200 + 17 / 30

    assert index.match(np.array([time_s]), tolerance_s=1e-4, where="").tolist() == [frame]
    with pytest.raises(FrameTimestampError):
        index.match(np.array([time_s + 2e-4]), tolerance_s=1e-4, where="")


def test_a_miss_lists_what_was_wanted_and_found() -> None:
    """The message has times wanted and found, file, context, count and cure."""
    index = index_of([0, 512, 1024])
    with pytest.raises(FrameTimestampError) as caught:
        index.match(np.array([0.0, 0.02, 0.5]), tolerance_s=1e-4, where="top, episode 3")
    message = str(caught.value)

    for part in (
        "top, episode 3",
        "within 0.0001 s of 2 of 3",
        "0.020000 s, nearest 0.033333 s",
        "0.500000 s, nearest 0.066667 s",
        "videos/top.mp4",
        "3 frames from 0.000000 s to 0.066667 s",
        "tolerance_s",
    ):
        assert part in message


@pytest.mark.parametrize("time_s", [np.nan, np.inf, -1.0])
def test_a_time_that_is_none_fails(time_s: float) -> None:
    """A time that is not a number, or outside the file, matches nothing."""
    with pytest.raises(FrameTimestampError):
        index_of([0, 512]).match(np.array([time_s]), tolerance_s=1e-4, where="")


def test_one_frame_is_enough() -> None:
    """A file of a single frame can be matched."""
    assert index_of([7]).match(np.array([7 / 15360]), tolerance_s=1e-4, where="").tolist() == [0]


@given(st.lists(st.integers(-(2**62), 2**62), max_size=20))
def test_compacting_changes_no_number(values: list[int]) -> None:
    """Numbers stay what they are, in 32 bits where all fit."""
    packed = compact(np.array(values, np.int64))

    assert packed.tolist() == values
    if all(abs(v) < 2**31 for v in values):
        assert packed.dtype == np.int32
