# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robostream.decode import FrameIndex, build_index
from robostream.decode.frame_index import plan_runs, start_earlier
from robostream.storage import LocalSource
from tests.decode.conftest import SampleVideo


@pytest.fixture(
    scope="module",
    params=["av1_g2", "h264_bframes", "hevc_open_gop", "two_sample_entries", "trimmed_start"],
)
def index(request: pytest.FixtureRequest, clip: Callable[[str], SampleVideo]) -> FrameIndex:
    """The index of a video of each kind of order."""
    return build_index(LocalSource(clip(request.param).path))


RANGES = st.tuples(st.integers(0, 60), st.integers(1, 40)).map(lambda r: set(range(r[0], sum(r))))


@given(picks=st.one_of(st.sets(st.integers(0, 10**6), min_size=1, max_size=12), RANGES))
def test_runs_cover_what_is_wanted_and_no_gop_too_many(index: FrameIndex, picks: set[int]) -> None:
    """Every wanted frame is exact in one run; runs ascend, do not touch, and are needed."""
    frames = np.unique(np.array(sorted(picks)) % index.num_frames)
    runs = plan_runs(index, frames)
    packets = index.packets_of(frames)

    for frame, packet in zip(frames, packets, strict=True):
        covering = [r for r in runs if r.first_packet <= packet < r.stop_packet]
        assert any(frame >= r.first_frame for r in covering)
    for run, following in itertools.pairwise(runs):
        assert run.first_packet < following.first_packet
        assert following.first_packet > run.stop_packet or following.config is not run.config
    for run in runs:
        assert run.first_packet in index.starts
        assert run.stop_packet - 1 in packets


def test_all_frames_are_one_run_per_set_up(index: FrameIndex) -> None:
    """The whole file is decoded in one go, unless the decoder's set-up changes."""
    runs = plan_runs(index, np.arange(index.num_frames))

    assert len(runs) == len(set(index.start_configs.tolist()))


def test_starting_earlier_goes_back_to_the_first_packet(index: FrameIndex) -> None:
    """Each step back begins one start earlier, ends the same, and the last begins the set-up."""
    run = plan_runs(index, np.array([index.num_frames - 1]))[0]
    seen = [run]
    while (earlier := start_earlier(index, seen[-1])) is not None:
        assert earlier.first_packet < seen[-1].first_packet
        assert earlier.stop_packet == run.stop_packet
        seen.append(earlier)

    assert len(seen) == sum(index.configs[n] is run.config for n in index.start_configs)
