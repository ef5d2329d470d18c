# SPDX-License-Identifier: Apache-2.0
"""data/ and videos/ may lie elsewhere than meta/."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robostream import LeRobotDataset
from robostream.errors import DatasetError
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES
from tests.loader.streams import AV1, assert_equals_map_style, open_loader, open_stream
from tests.servers.ports import forget_servers


@pytest.mark.parametrize("workers", [0, 2])
def test_metadata_from_one_place_and_files_from_another(
    tmp_path: Path, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples are those of the whole dataset, and the requests for them are counted."""
    forget_servers(tmp_path / "home", monkeypatch)
    shutil.copytree(AV1 / "meta", tmp_path / "cups" / "meta")
    whole = LeRobotDataset("x", root=AV1, return_uint8=True)
    with serve_files(AV1) as url:
        stream = open_stream(tmp_path / "cups", data_files_root=f"{url}/")
        loader = open_loader(stream, 8, num_workers=workers)
        for batch in loader:
            assert_equals_map_style(batch, whole)
        stats = loader.stats()
        loader.close()

    assert stats["requests"] > 0
    assert stats["bytes_read"] >= stats["bytes_fetched"] > 0
    assert stats["retries"] == stats["stalls"] == stats["throttled_s"] == 0


def test_files_that_are_not_those_of_the_metadata(tmp_path: Path) -> None:
    """Another dataset's files are an error with the file's name."""
    stream = open_stream(AV1, data_files_root=FIXTURES / "images")

    with pytest.raises(DatasetError, match=r"images/.*/chunk-000/file-000"):
        list(open_loader(stream, 8))
