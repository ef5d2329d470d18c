# SPDX-License-Identifier: Apache-2.0
"""How much memory decoded pictures get by default."""

from __future__ import annotations

from pathlib import Path

import pytest

from robostream.byte_sizes import format_bytes
from robostream.loader.dataloader import frame_budget
from robostream.loader.resources import needed_bytes
from robostream.loader.stream import cursor_of
from robostream.loader.streaming import StreamingLeRobotDataset
from robostream.plan import Cut, rank_lanes
from robostream.tools import SynthSpec, make_dataset
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import open_loader, open_stream

LANES = 2


def open_dataset(folder: Path, gop: int, **options: int) -> StreamingLeRobotDataset:
    """24 episodes of 40 frames, of which a pool holds four by default."""
    spec = SynthSpec(
        *(24, 40, 40), distinct=1, cameras=1, width=64, height=48, codec="h264", gop=gop
    )
    if not folder.exists():
        make_dataset(folder, spec)
    options = {"rank": 0, "world_size": 1, "episode_pool_size": 4, "lanes": LANES} | options
    return StreamingLeRobotDataset("lab/cups", root=folder, **options)


@pytest.mark.parametrize("gop", [2, 40])
def test_only_long_gops_keep_what_a_lead_in_decodes(tmp_path: Path, gop: int) -> None:
    """About half a window of each lane; never more than there is, and nothing on a GPU."""
    stream = open_dataset(tmp_path / "cups", gop)
    layout, plan = cursor_of(stream).layout, stream.plan(0)
    lanes = len(rank_lanes(Cut(0, 1, 4, drop_last=False), plan.lanes))
    needed = needed_bytes(plan, layout, lanes, decodes_whole_gops=False)
    on_gpu = needed_bytes(plan, layout, lanes, decodes_whole_gops=True)
    (camera,) = layout.cameras
    all_bytes = plan.num_frames * camera.cached_bytes

    assert gop // 2 < camera.gop_frames <= gop  # encoders begin one earlier where much changes
    assert camera.has_long_gops == (gop == 40)
    half = lanes * plan.window / 2 * camera.cached_bytes
    assert 0 < needed.lanes < needed.lanes + half < all_bytes
    assert (needed.lead_in >= half) == (gop == 40)
    assert sum(needed) <= all_bytes
    assert on_gpu.lead_in == 0
    assert on_gpu.lanes == needed.lanes + lanes * camera.gop_frames * camera.cached_bytes


@pytest.mark.parametrize("keeps_all", [True, False])
def test_each_frame_of_long_gops_is_decoded_about_once(tmp_path: Path, keeps_all: bool) -> None:
    """Of the first epoch too, with many more episodes at a time than decoders inside their GOPs."""
    whole = 24 * 40 * 64 * 48 * 3 // 2
    options = {"frame_cache_bytes": 2 * whole if keeps_all else whole - 1}
    stream = open_dataset(tmp_path / "cups", 40, episode_pool_size=12, lanes=4, **options)
    loader = open_loader(stream, 8)
    for _ in range(2):
        assert sum(len(batch["index"]) for batch in loader) == stream.num_frames
    stats = loader.stats()

    assert frame_budget(loader).keeps_all == keeps_all
    # Lanes begin inside episodes, and frames before that are decoded for both lanes.
    assert stats["images_decoded"] <= 1.3 * stream.num_frames * (1 if keeps_all else 2)


def test_too_little_memory_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """It says what is needed and what the lack costs, once; enough memory is no warning."""

    def warnings(**options: int) -> list[str]:
        caplog.clear()
        order = {"lanes": 1, "episode_pool_size": 2}
        loader = open_loader(open_stream(FIXTURES / "h264_long_gop", **order, **options), 4)
        for _ in range(2):
            next(iter(loader))
            loader.close()
        return [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]

    stream = open_stream(FIXTURES / "h264_long_gop", lanes=1, episode_pool_size=2)
    needed = sum(
        needed_bytes(stream.plan(0), cursor_of(stream).layout, 1, decodes_whole_gops=False)
    )
    gop = max(camera.gop_frames for camera in cursor_of(stream).layout.cameras)
    (said,) = warnings(frame_cache_bytes=1000)

    assert format_bytes(needed) in said
    assert f"GOPs of {gop} frames up to about {(gop + 1) / 2:.3g} frames" in said
    assert "frame_cache_bytes" in said
    assert warnings(frame_cache_bytes=needed) == warnings() == []
