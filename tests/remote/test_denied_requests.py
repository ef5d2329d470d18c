# SPDX-License-Identifier: Apache-2.0
"""Missing and denied files raise at once, and the message says what to do."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robostream import config
from robostream.testing import Exchange, Fault, Script, serve_files, start_proxy
from tests.remote.conftest import Serve, stream_epochs
from tests.remote.stores import STORES
from tests.servers.hub import Hub
from tests.servers.s3 import S3Endpoint

pytestmark = pytest.mark.long

VIDEO = "videos/observation.images.front/chunk-000/file-000.mp4"
# Where the access to each place comes from, in words of the message.
CURES = {"hub": "HF_TOKEN", "bucket": "HF_TOKEN", "s3": "AWS_", "http": "storage_options"}


def tries(journal: list[Exchange], file: str) -> int:
    return sum(exchange.path.endswith(file) for exchange in journal)


@pytest.mark.parametrize("place", STORES)
@pytest.mark.parametrize(("status", "error"), [(404, "VideoFileError"), (403, "AccessDeniedError")])
def test_a_file_that_is_refused_fails_at_once(
    served: Serve, tmp_path: Path, place: str, status: int, error: str
) -> None:
    """There are no retries; the error names the file, and for 403 how to gain access."""
    found = served(place)
    with start_proxy(found.url, Script((Fault("status", status=status, path=VIDEO),))) as proxy:
        near = found.behind(proxy.url)
        report = stream_epochs(tmp_path / "home", near.stream, near.environment, num_workers=0)
        journal = proxy.journal()

    assert report.error == error, report.words
    assert VIDEO in report.message
    assert (CURES[place] if status == 403 else "Check the address") in report.message
    # Nobody who reads the file asked again: that would have been so often.
    assert 1 <= tries(journal, VIDEO) < config.REMOTE_RETRIES


def test_a_missing_file_is_named(dataset: Path, tmp_path: Path) -> None:
    """The error names a file that the server really lacks."""
    root = Path(shutil.copytree(dataset, tmp_path / "cups"))
    (root / VIDEO).unlink()
    with serve_files(root) as url:
        stream = {"repo_id": "lab/cups", "root": url}
        report = stream_epochs(tmp_path / "home", stream, {}, num_workers=0)

    assert report.error == "VideoFileError", report.words
    assert f"{url}/{VIDEO}" in report.message


def test_gated_and_private_repos_ask_for_a_token(hub: Hub, dataset: Path, tmp_path: Path) -> None:
    """The message says how to log in; with a token the dataset is read."""
    hub.add_repo("lab/cups", token="hf_key", gated=True).commit(dataset, tags=["v3.0"])
    environment = {"HF_ENDPOINT": hub.url}
    stream = {"repo_id": "lab/cups"}
    outside = stream_epochs(tmp_path / "outside", stream, environment)
    inside = stream_epochs(tmp_path / "inside", stream, environment | {"HF_TOKEN": "hf_key"})

    assert outside.error == "MetadataError", outside.words
    assert "token" in outside.message
    assert inside.error == "", inside.words


def test_wrong_keys_are_told_at_once(dataset: Path, tmp_path: Path, s3: S3Endpoint) -> None:
    """The message names the variables that hold the keys."""
    address = s3.upload(dataset / "meta", "remote-refused/cups/meta").removesuffix("/meta")
    with start_proxy(s3.url) as proxy:
        environment = {
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ACCESS_KEY_ID": s3.key,
            "AWS_SECRET_ACCESS_KEY": "wrong",
        }
        stream = {"repo_id": "lab/cups", "root": address}
        report = stream_epochs(tmp_path / "home", stream, environment)
        journal = proxy.journal()

    assert report.error == "MetadataError", report.words
    assert "AWS_" in report.message
    assert len(journal) <= 2
