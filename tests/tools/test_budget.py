# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from robostream.plan import Cut, EpochPlan
from robostream.tools import DatasetSizes, estimate_mixing, estimate_rank, estimate_steps

PLAN = EpochPlan([100] * 1000, seed=0, epoch=0, lanes=24, pool_size=48)
SIZES = DatasetSizes(
    data_bytes=10**8,
    video_bytes=9 * 10**8,
    num_data_files=1,
    num_video_files=6,
    num_videos=3,
    measured=True,
    decoded_bytes_per_frame=10**5,
    row_bytes_per_frame=200,
)


def test_steps_follow_the_tail_rule() -> None:
    """100,000 frames in global batches of 512 are 195 full steps and a tail of 160 frames."""
    keep, drop = Cut(0, 8, 64, drop_last=False), Cut(0, 8, 64, drop_last=True)
    kept = estimate_steps(PLAN, keep, epochs=3, samples_per_s=125)
    dropped = estimate_steps(PLAN, drop, epochs=3, samples_per_s=125)

    assert (kept.per_epoch, kept.total, kept.repeated_frames) == (196, 588, 0)
    assert (dropped.per_epoch, dropped.total, dropped.dropped_frames) == (195, 585, 160)
    assert kept.epoch_s == pytest.approx(100)


def test_repeats_complete_the_tail_to_the_world_size() -> None:
    """With 7 ranks, 100,000 frames lack 2 to be shared evenly."""
    steps = estimate_steps(PLAN, Cut(0, 7, 64, drop_last=False), epochs=1, samples_per_s=1)

    assert steps.repeated_frames == 2


def test_mixing_states_what_is_wanted_and_what_it_takes() -> None:
    """Expected, counted and uniform diversity stand side by side, with the pool to choose."""
    mixing = estimate_mixing(PLAN, Cut(0, 8, 16, drop_last=True), wanted=0.8)

    assert mixing.per_rank < mixing.simulated < mixing.uniform < 128
    assert mixing.expected == pytest.approx(mixing.simulated, rel=0.05)
    assert mixing.smallest_pool > PLAN.pool_size


def test_a_rank_reads_its_share() -> None:
    """With W dividing the lanes a rank reads 1/W of the bytes, and its lanes' entries again."""
    rank = estimate_rank(PLAN, Cut(3, 8, 64, drop_last=True), SIZES, epoch_s=100)

    assert (rank.lanes, rank.readers) == (3, 1)
    assert 10**9 / 8 < rank.bytes_per_epoch < 10**9 / 8 * 1.1
    assert rank.bytes_per_s == pytest.approx(rank.bytes_per_epoch / 100)
    assert 4 * 1000 / 8 < rank.requests_per_epoch < 4 * 1000 / 8 * 1.2
    assert 6 <= rank.open_episodes <= 10
    assert rank.row_cache_bytes == rank.open_episodes_most * 100 * 200
    assert rank.disk_cache_bytes == rank.open_episodes_most * 10**6
    # 3 lanes, each with half a window of 200 frames and half an episode decoded ahead.
    assert rank.frame_cache_bytes == 3 * 150 * 10**5


def test_ranks_that_share_lanes_read_them_all() -> None:
    """16 ranks have 8 as common divisor with 24 lanes: two ranks read each lane."""
    rank = estimate_rank(PLAN, Cut(3, 16, 64, drop_last=True), SIZES, epoch_s=100)

    assert (rank.lanes, rank.readers) == (3, 2)


def test_a_pool_of_everything_is_read_once() -> None:
    """When all of a lane is open all the time, nothing is read again but everything is kept."""
    plan = EpochPlan([100] * 10, seed=0, epoch=0, lanes=2, pool_size=10)
    rank = estimate_rank(plan, Cut(0, 1, 8, drop_last=True), SIZES, epoch_s=1)

    assert rank.bytes_per_epoch == 10**9
    assert rank.frame_cache_bytes == 1000 * 10**5
    assert rank.open_episodes_most == 10
