# SPDX-License-Identifier: Apache-2.0
"""How much is asked of a server to open metadata, and to open it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from robostream import config
from robostream.bench.meta import write_meta_folder
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import CacheSettings
from robostream.testing import Proxy, start_proxy
from tests.fixture_datasets import copy_of
from tests.servers.nginx import serve_nginx
from tests.servers.ports import forget_servers
from tests.servers.s3 import S3Endpoint


@pytest.fixture(autouse=True)
def unknown_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Separate caches, and no known servers."""
    forget_servers(tmp_path / "home", monkeypatch)
    yield
    forget_servers(tmp_path / "home", monkeypatch)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Metadata as LeRobot's recorder writes it: ten episodes a row group, most of it statistics."""
    root = tmp_path_factory.mktemp("recorded")
    (root / "meta").mkdir()
    write_meta_folder(root, 1500, rows_per_group=10)
    return root


@contextmanager
def serve_http(root: Path, work: Path) -> Iterator[Proxy]:
    (work / "nginx").mkdir()
    with serve_nginx(root, work / "nginx") as url, start_proxy(url) as proxy:
        yield proxy


def load(root: str, tmp_path: Path, **options: Any) -> LeRobotDatasetMetadata:
    cache = CacheSettings(tmp_path / "cache")
    return LeRobotDatasetMetadata("lab/cups", root, cache=cache, **options)


def needed_bytes(root: Path) -> int:
    """The bytes of footers, of columns that are no statistics, and of all other files."""
    total = 0
    for path in (path for path in root.rglob("*") if path.is_file()):
        if path.parent.parent.name != "episodes":
            total += path.stat().st_size
            continue
        metadata = pq.read_metadata(path)
        total += metadata.serialized_size
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            chunks = [group.column(at) for at in range(group.num_columns)]
            total += sum(
                chunk.total_compressed_size
                for chunk in chunks
                if not chunk.path_in_schema.startswith("stats/")
            )
    return total


def test_statistics_of_episodes_are_not_fetched(recorded: Path, tmp_path: Path) -> None:
    """At most a tenth more than what is needed, and the same table as from local disk."""
    with serve_http(recorded, tmp_path) as proxy:
        meta = load(proxy.url, tmp_path)
        fetched = sum(exchange.sent_bytes for exchange in proxy.journal())

    assert meta.fingerprint == LeRobotDatasetMetadata("lab/cups", recorded).fingerprint
    assert fetched <= 1.1 * needed_bytes(recorded)


@pytest.mark.parametrize("place", ["http", "s3"])
@pytest.mark.parametrize("size", ["small", "large"])
def test_a_second_process_asks_once_for_each_file(
    recorded: Path, s3: S3Endpoint, tmp_path: Path, place: str, size: str
) -> None:
    """Whether it changed: no bytes, no listing, no files that are not there."""
    root = recorded if size == "large" else copy_of("av1_multifile", tmp_path)
    files = [path for path in (root / "meta").rglob("*") if path.is_file()]
    first = LeRobotDatasetMetadata("lab/cups", root).fingerprint
    if place == "s3":
        address = s3.upload(root / "meta", f"metadata/{tmp_path.name}/meta").removesuffix("/meta")
        with start_proxy(s3.url) as proxy:
            options = {"storage_options": s3.storage_options | {"endpoint_url": proxy.url}}
            assert load(address, tmp_path, **options).fingerprint == first
            begun = len(proxy.journal())
            assert load(address, tmp_path, **options).fingerprint == first
            asked = proxy.journal(begun)
    else:
        with serve_http(root, tmp_path) as proxy:
            assert load(proxy.url, tmp_path).fingerprint == first
            begun = len(proxy.journal())
            assert load(proxy.url, tmp_path).fingerprint == first
            asked = proxy.journal(begun)

    # Where there is no stats.json, that must be found out.
    assert len(asked) <= len({*files, root / config.STATS_PATH})
    assert sum(exchange.sent_bytes for exchange in asked if exchange.status == 200) == 0


def test_a_damaged_table_in_the_cache_is_read_again(
    recorded: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One flipped bit is noticed, and the next process finds a whole one."""
    with serve_http(recorded, tmp_path) as proxy:
        truth = load(proxy.url, tmp_path).fingerprint
        (kept,) = (tmp_path / "cache" / "files").iterdir()
        content = bytearray(kept.read_bytes())
        content[len(content) // 2] ^= 1
        kept.write_bytes(content)
        assert load(proxy.url, tmp_path).fingerprint == truth
        assert "damaged" in caplog.text
        load(proxy.url, tmp_path)
        begun = len(proxy.journal())
        assert load(proxy.url, tmp_path).fingerprint == truth
        asked = proxy.journal(begun)

    assert "GET" not in {exchange.method for exchange in asked}


def test_files_of_unusual_names_are_listed(s3: S3Endpoint, tmp_path: Path) -> None:
    """A table that does not begin with file-000 is found by its listing."""
    root = copy_of("av1_multifile", tmp_path)
    truth = LeRobotDatasetMetadata("lab/cups", root).fingerprint
    table = root / config.EPISODES_PATH.format(chunk_index=0, file_index=0)
    os.rename(table, table.with_name("file-007.parquet"))
    address = s3.upload(root, f"metadata/{tmp_path.name}")
    meta = load(address, tmp_path, storage_options=s3.storage_options)

    assert meta.fingerprint == truth
