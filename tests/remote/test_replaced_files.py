# SPDX-License-Identifier: Apache-2.0
"""Files replaced by others of their size, on a server that gives no version of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream import LeRobotDataset
from tests.loader.streams import assert_equals_map_style, open_loader, open_stream
from tests.remote.conftest import Pair
from tests.remote.digest import EpochDigest, digest_epoch
from tests.servers.nginx import serve_nginx

pytestmark = pytest.mark.usefixtures("unknown_servers")
WITHOUT_VERSIONS = "etag off; add_header Last-Modified '';"


@pytest.fixture
def served(pair: Pair, tmp_path: Path) -> Path:
    """The folder that is served, with the first dataset of the pair."""
    return Path(shutil.copytree(pair[0], tmp_path / "served"))


@pytest.fixture
def url(served: Path, tmp_path: Path) -> Iterator[str]:
    """Its address on a server that gives neither ETag nor Last-Modified."""
    (tmp_path / "nginx").mkdir()
    with serve_nginx(served, tmp_path / "nginx", WITHOUT_VERSIONS) as address:
        yield address


def replace_videos(served: Path, pair: Pair) -> None:
    shutil.copytree(pair[1] / "videos", served / "videos", dirs_exist_ok=True)


def test_the_next_run_reads_a_replaced_file_again(
    pair: Pair,
    truths: tuple[EpochDigest, ...],
    served: Path,
    url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Bytes of an earlier run are not used, and a warning names the lack of versions."""
    for root, truth in zip(pair, truths, strict=True):
        shutil.copytree(root, served, dirs_exist_ok=True)
        stream = open_stream(root=url, cache_dir=tmp_path / "cache")

        assert digest_epoch(open_loader(stream, 8)) == truth
    assert caplog.text.count("gives no version of its files (no") == 1


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_run_goes_on_with_a_replaced_file(
    pair: Pair, served: Path, url: str, num_workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An epoch that begins later has frames of the new file, and a warning explains it."""
    stream = open_stream(root=url, frame_cache_bytes=0, on_bad_episode="quarantine")
    loader = open_loader(stream, 8, num_workers=num_workers)
    frames = sum(len(batch["index"]) for batch in loader)
    replace_videos(served, pair)
    now = LeRobotDataset("some/name", served, return_uint8=True)
    # Workers may have begun this epoch with the old files.
    assert sum(len(batch["index"]) for batch in loader) == frames
    for batch in loader:
        assert_equals_map_style(batch, now)
        frames -= len(batch["index"])
    loader.close()

    assert frames == 0
    assert "replaced by another of the same size" in caplog.text
    assert "quarantined" not in caplog.text


def test_map_style_reading_goes_on_with_a_replaced_file(
    pair: Pair, served: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Items equal those of a dataset that is opened now."""
    dataset = LeRobotDataset("some/name", url, return_uint8=True, frame_cache_bytes=0)
    camera = dataset.meta.camera_keys[0]
    before = dataset[0][camera]
    replace_videos(served, pair)
    now = LeRobotDataset("some/name", served, return_uint8=True)

    assert (now[0][camera] != before).any()
    assert (dataset[0][camera] == now[0][camera]).all()
    assert "replaced by another of the same size" in caplog.text
