# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robostream.meta import LeRobotDatasetMetadata
from robostream.tools import measure_dataset
from tests.fixture_datasets import FIXTURES, NAMES, copy_of


@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_those_of_the_files(name: str) -> None:
    """Bytes and numbers of files are what lies on the disk."""
    root = FIXTURES / name
    sizes = measure_dataset(LeRobotDatasetMetadata(name, root=root))
    rows = [path.stat().st_size for path in (root / "data").rglob("*.parquet")]
    videos = [path.stat().st_size for path in (root / "videos").rglob("*.mp4")]

    assert sizes.measured
    assert (sizes.data_bytes, sizes.num_data_files) == (sum(rows), len(rows))
    assert (sizes.video_bytes, sizes.num_video_files) == (sum(videos), len(videos))


def test_a_frame_weighs_what_its_features_say() -> None:
    """Two cameras of 64x48 in YUV 4:2:0; 15 float32, 1 bool and 4 int64 of rows."""
    meta = LeRobotDatasetMetadata("x", root=FIXTURES / "av1_multifile")
    sizes = measure_dataset(meta)

    assert sizes.num_videos == 2
    assert sizes.decoded_bytes_per_frame == 2 * 64 * 48 * 3 // 2
    assert sizes.row_bytes_per_frame == 15 * 4 + 1 + 4 * 8


def test_without_a_listing_the_size_is_a_bound(tmp_path: Path) -> None:
    """Files that cannot be listed weigh at most what info.json lets a file grow to."""
    root = copy_of("av1_multifile", tmp_path)
    shutil.rmtree(root / "videos")
    meta = LeRobotDatasetMetadata("x", root=root)
    sizes = measure_dataset(meta)

    assert not sizes.measured
    assert sizes.num_video_files == 6
    assert sizes.video_bytes == pytest.approx(6 * meta.video_files_size_in_mb * 1024**2, rel=1e-3)
