# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from robostream.loader.resources import needed_bytes
from robostream.loader.stream import cursor_of
from robostream.meta import LeRobotDatasetMetadata
from robostream.plan import CameraFrames, Cut, EpochPlan
from robostream.tools import (
    DatasetSizes,
    estimate_mixing,
    estimate_rank,
    estimate_steps,
    list_video_cameras,
    measure_dataset,
)
from tests.fixture_datasets import ALL_NAMES, FIXTURES, copy_of
from tests.loader.streams import open_stream

PLAN = EpochPlan([100] * 1000, seed=0, epoch=0, lanes=24, pool_size=48)
SIZES = DatasetSizes(
    data_bytes=10**8,
    video_bytes=9 * 10**8,
    num_data_files=1,
    num_video_files=6,
    num_videos=3,
    opening_requests=2,
    measured=True,
    decoded_bytes_per_frame=10**5,
    row_bytes_per_frame=200,
)
CAMERAS = [CameraFrames(frame_bytes=10**5, gop_frames=2, window_frames=0, has_long_gops=False)]


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


def test_mixing_has_the_diversity_and_the_pool_for_it() -> None:
    """Expected, counted and uniform diversity agree, and a larger pool is proposed."""
    mixing = estimate_mixing(PLAN, Cut(0, 8, 16, drop_last=True), wanted=0.8)

    assert mixing.per_rank < mixing.simulated < mixing.uniform < 128
    assert mixing.expected == pytest.approx(mixing.simulated, rel=0.05)
    assert mixing.smallest_pool > PLAN.pool_size


def test_a_rank_reads_its_share() -> None:
    """If W divides the lanes, a rank reads 1/W of the bytes, and its lanes' entries again."""
    rank = estimate_rank(PLAN, Cut(3, 8, 64, drop_last=True), SIZES, CAMERAS, epoch_s=100)

    assert (rank.lanes, rank.readers) == (3, 1)
    assert 10**9 / 8 < rank.bytes_per_epoch < 10**9 / 8 * 1.1
    assert rank.bytes_per_s == pytest.approx(rank.bytes_per_epoch / 100)
    assert 4 * 1000 / 8 < rank.requests_per_epoch < 4 * 1000 / 8 * 1.2
    assert 6 <= rank.open_episodes <= 10
    assert rank.row_cache_bytes == rank.open_episodes_most * 100 * 200
    assert rank.disk_cache_bytes == rank.open_episodes_most * 10**6
    # 3 lanes, each with 1.1 times half a window of 200 frames and a margin of 44 before its head.
    assert rank.frame_cache_bytes == 3 * (110 + 44) * 10**5


def test_a_rank_does_not_open_the_files_of_other_ranks() -> None:
    """With files for each episode, as v2.x has them, fetched whole or opened first."""
    sizes = dataclasses.replace(SIZES, num_data_files=1000, num_video_files=3000)
    cut, reads = Cut(3, 8, 64, drop_last=True), 4 * 1000 / 8
    opened = estimate_rank(PLAN, cut, sizes, CAMERAS, epoch_s=100)
    whole = estimate_rank(
        PLAN, cut, dataclasses.replace(sizes, opening_requests=0), CAMERAS, epoch_s=100
    )

    assert reads < whole.requests_per_epoch < reads * 1.2
    assert opened.requests_per_epoch == 3 * whole.requests_per_epoch


@pytest.mark.parametrize(("name", "requests"), [("v21_videos", 0), ("av1_multifile", 2)])
def test_small_files_of_v2_are_fetched_whole(name: str, requests: int) -> None:
    """Those of v3.0 hold many episodes, and their index is read first."""
    meta = LeRobotDatasetMetadata("x", root=FIXTURES / name)

    assert measure_dataset(meta).opening_requests == requests


def test_ranks_that_share_lanes_read_them_all() -> None:
    """16 ranks have 8 as common divisor with 24 lanes: two ranks read each lane."""
    rank = estimate_rank(PLAN, Cut(3, 16, 64, drop_last=True), SIZES, CAMERAS, epoch_s=100)

    assert (rank.lanes, rank.readers) == (3, 2)


def test_a_pool_of_everything_is_read_once() -> None:
    """If a whole lane is always open, nothing is read again, and the disk holds all of it."""
    plan = EpochPlan([100] * 10, seed=0, epoch=0, lanes=2, pool_size=10)
    rank = estimate_rank(plan, Cut(0, 1, 8, drop_last=True), SIZES, CAMERAS, epoch_s=1)

    assert rank.bytes_per_epoch == 10**9
    assert rank.disk_cache_bytes == 10**9
    # 2 lanes, each with 1.1 times half a window of 500 frames and a margin of 60.
    assert rank.frame_cache_bytes == 2 * (275 + 60) * 10**5
    assert rank.open_episodes_most == 10


@pytest.mark.parametrize("name", ALL_NAMES)
@pytest.mark.parametrize(("world_size", "pool_size"), [(1, 64), (8, 64), (1, 2000)])
def test_the_loader_needs_the_same_memory(name: str, world_size: int, pool_size: int) -> None:
    """For one plan and GOP length, `robostream plan` and the loader compute the same bytes."""
    stream = open_stream(FIXTURES / name)
    plan = EpochPlan([300] * 2000, seed=0, epoch=0, lanes=240, pool_size=pool_size)
    cut = Cut(0, world_size, 64, drop_last=False)
    gop = max((camera.gop_frames for camera in cursor_of(stream).layout.cameras), default=1)
    cameras = list_video_cameras(stream.meta, gop)
    rank = estimate_rank(plan, cut, measure_dataset(stream.meta), cameras, epoch_s=1)
    needed = needed_bytes(plan, cursor_of(stream).layout, rank.lanes, decodes_whole_gops=False)

    assert rank.frame_cache_bytes == sum(needed)


def test_long_episodes_take_no_more_memory_than_short_ones() -> None:
    """2,000 episodes of 300 frames of 64x64 in 240 lanes need 107 MiB: none is decoded whole."""
    plan = EpochPlan([300] * 2000, seed=0, epoch=0, lanes=240, pool_size=64)
    camera = CameraFrames(64 * 64 * 3 // 2, gop_frames=2, window_frames=0, has_long_gops=False)
    rank = estimate_rank(plan, Cut(0, 1, 64, drop_last=False), SIZES, [camera], epoch_s=1)

    assert round(rank.frame_cache_bytes / 2**20) == 107


@pytest.mark.parametrize(
    ("recorded", "asked", "wanted"), [(250, None, 250), (None, None, 2), (250, 7, 7)]
)
def test_the_gop_is_given_recorded_or_the_default(
    tmp_path: Path, recorded: int | None, asked: int | None, wanted: int
) -> None:
    """The argument comes first, then info.json's video.g, then 2."""
    root = copy_of("h264_long_gop", tmp_path)
    info = json.loads((root / "meta/info.json").read_text())
    for entry in info["features"].values():
        if "info" in entry:
            entry["info"]["video.g"] = recorded
    (root / "meta/info.json").write_text(json.dumps(info))
    cameras = list_video_cameras(LeRobotDatasetMetadata("x", root=root), asked)

    assert {camera.gop_frames for camera in cameras} == {wanted}
    assert {camera.has_long_gops for camera in cameras} == {wanted > 16}


@pytest.mark.parametrize("name", ALL_NAMES)
def test_sizes_are_those_of_the_files(name: str) -> None:
    """Bytes and numbers of files equal those on disk."""
    root = FIXTURES / name
    sizes = measure_dataset(LeRobotDatasetMetadata(name, root=root))
    rows = [path.stat().st_size for path in (root / "data").rglob("*.parquet")]
    videos = [path.stat().st_size for path in (root / "videos").rglob("*.mp4")]

    assert sizes.measured
    assert (sizes.data_bytes, sizes.num_data_files) == (sum(rows), len(rows))
    assert (sizes.video_bytes, sizes.num_video_files) == (sum(videos), len(videos))


def test_the_size_of_a_frame_follows_from_its_features() -> None:
    """Two cameras of 64x48 in YUV 4:2:0; 15 float32, 1 bool and 4 int64 of rows."""
    meta = LeRobotDatasetMetadata("x", root=FIXTURES / "av1_multifile")
    sizes = measure_dataset(meta)

    assert sizes.num_videos == 2
    assert sizes.decoded_bytes_per_frame == 2 * 64 * 48 * 3 // 2
    assert sizes.row_bytes_per_frame == 15 * 4 + 1 + 4 * 8


def test_without_a_listing_the_size_is_an_upper_bound(tmp_path: Path) -> None:
    """Unlisted files have at most the size limit in info.json."""
    root = copy_of("av1_multifile", tmp_path)
    shutil.rmtree(root / "videos")
    meta = LeRobotDatasetMetadata("x", root=root)
    sizes = measure_dataset(meta)

    assert not sizes.measured
    assert sizes.num_video_files == 6
    assert sizes.video_bytes == pytest.approx(6 * meta.video_files_size_in_mb * 1024**2, rel=1e-3)
