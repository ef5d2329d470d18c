# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.assemble.opened import check_span
from robostream.errors import MetadataError
from robostream.meta import LeRobotDatasetMetadata
from tests.fixture_datasets import ROOTS, root_id

WHERE = "meta/episodes: episode 3, observation.images.top"


@pytest.mark.parametrize("root", ROOTS, ids=root_id)
def test_spans_lerobot_wrote_are_accepted(root: Path) -> None:
    """Every episode of every camera, in files of one episode and of many."""
    meta = LeRobotDatasetMetadata("some/name", root=root)
    for key in meta.video_keys:
        starts, stops = (meta.episodes[f"videos/{key}/{n}_timestamp"] for n in ("from", "to"))
        for start, stop, length in zip(starts, stops, meta.episodes["length"], strict=True):
            check_span(start, stop, length, meta.fps, WHERE)


@given(
    start=st.floats(0, 1e5),
    length=st.integers(1, 100_000),
    fps=st.sampled_from([1, 10, 29.97, 30, 50, 240]),
    drift=st.floats(-0.85, 0.85),
)
def test_an_end_that_was_measured_may_be_off_by_a_part_of_a_frame(
    start: float, length: int, fps: float, drift: float
) -> None:
    """What an encoder makes of the last frame's duration is no fault of the table."""
    check_span(start, start + (length + drift) / fps, length, fps, WHERE)


@pytest.mark.parametrize("shift", [-1, 1, -3, 40])
@pytest.mark.parametrize("moved", ["from", "to"])
def test_a_start_or_end_that_is_off_by_a_frame(moved: str, shift: int) -> None:
    """A whole frame too many or too few is an error that says where and how many."""
    start = (100 + (shift if moved == "from" else 0)) / 30
    stop = (180 + (shift if moved == "to" else 0)) / 30
    frames = 80 + (shift if moved == "to" else -shift)

    with pytest.raises(
        MetadataError, match=rf"{WHERE}: .* is {frames} frames at 30 fps, want the 80"
    ):
        check_span(start, stop, 80, 30, WHERE)


@pytest.mark.parametrize(("declared", "real"), [(15, 30), (60, 30), (25, 50)])
def test_a_wrong_rate_is_told_as_such(declared: int, real: int) -> None:
    """A span of twice or half as many frames names the rate it would fit."""
    with pytest.raises(MetadataError, match=f"would fit at {real} fps: correct fps in info.json"):
        check_span(10.0, 10.0 + 90 / real, 90, declared, WHERE)


@pytest.mark.parametrize("stop", [float("nan"), 9.0, 10.0])
def test_a_span_of_no_time(stop: float) -> None:
    """An end before the start, or none at all, is an error too."""
    with pytest.raises(MetadataError, match="The episode table is damaged"):
        check_span(10.0, stop, 90, 30, WHERE)
