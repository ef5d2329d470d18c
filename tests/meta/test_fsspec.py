# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.registry import _registry

from robostream.errors import MetadataError, MissingExtraError
from robostream.meta import LeRobotDatasetMetadata, location_of
from robostream.storage import FileOpener
from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES
from tests.servers.s3 import S3Endpoint

FIXTURE = FIXTURES / "av1_multifile"
DATA = "data/chunk-000/file-000.parquet"


def load(url: str, **options: Any) -> LeRobotDatasetMetadata:
    return LeRobotDatasetMetadata("some/name", root=url, storage_options=options or None)


def assert_is_fixture(meta: LeRobotDatasetMetadata) -> None:
    local = load(str(FIXTURE))
    source = FileOpener(location_of(meta)).open(DATA)

    assert meta.fingerprint == local.fingerprint
    assert meta.tasks.index == local.tasks.index
    assert meta.episodes[1] == local.episodes[1]
    assert source.read(0, source.size()) == (FIXTURE / DATA).read_bytes()


@pytest.fixture
def memory_url(tmp_path: Path) -> str:
    """A copy of the fixture in fsspec's memory filesystem, at a place of this test's own."""
    url = f"memory:/{tmp_path}/cups"
    fsspec.filesystem("memory").put(str(FIXTURE), url, recursive=True)
    return url


def test_any_fsspec_url_is_read(memory_url: str) -> None:
    """A dataset behind a URL is the dataset of the folder, with or without a slash at the end."""
    assert_is_fixture(load(memory_url))
    assert_is_fixture(load(memory_url + "/"))
    assert_is_fixture(LeRobotDatasetMetadata(memory_url))


def test_a_file_url_is_a_local_folder() -> None:
    """file:// is read as the path it names."""
    meta = load(FIXTURE.as_uri())

    assert meta.root == FIXTURE
    assert_is_fixture(meta)


def test_a_web_server_that_lists_nothing_is_read() -> None:
    """The files of the episode table are found by the names they usually have."""
    with serve_files(FIXTURE) as url:
        assert_is_fixture(load(url))


def test_s3_is_read_and_travels_to_workers(s3: S3Endpoint) -> None:
    """A dataset in a bucket is read with the options given, also after pickling."""
    url = s3.upload(FIXTURE, "fsspec-tests/cups")
    meta = load(url, **s3.storage_options)

    assert_is_fixture(meta)
    assert_is_fixture(pickle.loads(pickle.dumps(meta)))


def test_s3_that_cannot_be_read_is_an_error_with_its_address(
    s3: S3Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A wrong key, a missing bucket and a server that is gone each give an error of ours."""
    url = s3.upload(FIXTURE / "meta", "fsspec-tests/part/meta").removesuffix("/meta")
    gone = s3.storage_options | {"endpoint_url": "http://127.0.0.1:9"}
    monkeypatch.setenv("ROBOSTREAM_REMOTE_IO_MAX_RETRIES", "1")

    with pytest.raises(MetadataError, match=r"s3://fsspec-none/x/meta/info.json: not found"):
        load("s3://fsspec-none/x", **s3.storage_options)
    with pytest.raises(
        MetadataError, match=rf"{url}/meta/info.json: .*HTTP 403.* Check AWS_ACCESS_KEY_ID"
    ):
        load(url, **s3.storage_options | {"secret": "wrong"})
    with pytest.raises(
        MetadataError, match=rf"{url}/meta/info.json: gave up after 2 attempts .*refused"
    ):
        load(url, **gone)


@pytest.mark.parametrize("url", ["nowhere://a/b", "memory://no/such/place"])
def test_a_url_that_leads_nowhere_is_an_error(url: str) -> None:
    """An unknown protocol and an empty place are told in words."""
    with pytest.raises(MetadataError, match=url):
        load(url)


@pytest.mark.parametrize(
    ("url", "package", "cure"),
    [
        ("gs://bucket/cups", "gcsfs", "pip install gcsfs"),
        ("abfs://bucket/cups", "adlfs", "pip install adlfs"),
        ("s3://bucket/cups", "botocore", r"pip install 'robostream\[s3\]'"),
    ],
)
def test_a_filesystem_that_is_not_installed(
    url: str, package: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the package and a command that brings it."""
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.session", None)
    monkeypatch.delitem(_registry, url.split(":")[0], raising=False)

    with pytest.raises(MissingExtraError, match=f"{url} needs the package '{package}'.*{cure}$"):
        load(url)
