# SPDX-License-Identifier: Apache-2.0
"""The loopback Hub answers as the real one does where our code depends on it."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from tests.servers.hub import Hub


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Small and large files, more than one page of them."""
    for number in range(30):
        path = tmp_path / f"videos/chunk-{number:03d}/file.mp4"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(range(number, number + 200)))
    (tmp_path / "README.md").write_text("0123456789")
    return tmp_path


def get(url: str, wanted: str) -> HTTPResponse:
    request = urllib.request.Request(url, headers={"Range": wanted})
    response: HTTPResponse = urllib.request.urlopen(request)
    return response


def test_a_long_listing_comes_in_pages(hub: Hub, folder: Path) -> None:
    """A client that follows the links sees every file and folder once."""
    hub.add_repo("lab/cups").commit(folder)
    entries = list(
        HfApi(endpoint=hub.url).list_repo_tree(
            "lab/cups", None, recursive=True, repo_type="dataset"
        )
    )
    on_disk = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]

    assert sorted(entry.path for entry in entries) == sorted(on_disk)
    assert sum("/tree/" in request.path for request in hub.requests) == 4


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("bytes=0-3", 0, 4), ("bytes=4-", 4, None), ("bytes=-3", -3, None)],
)
@pytest.mark.parametrize("path", ["README.md", "videos/chunk-007/file.mp4"])
def test_ranges_are_exact(
    hub: Hub, folder: Path, path: str, wanted: str, start: int, stop: int | None
) -> None:
    """A range of a small file or of a large one, which lies on another host, is those bytes."""
    commit = hub.add_repo("lab/cups").commit(folder)
    with get(f"{hub.url}/datasets/lab/cups/resolve/main/{path}", wanted) as response:
        content, final = response.read(), response.url

    assert content == (folder / path).read_bytes()[start:stop]
    assert response.status == 206
    assert final.startswith("http://localhost:" if path.endswith(".mp4") else hub.url)
    assert hub.repos["lab/cups"].resolve("main") == commit
    assert hub.downloads("lab/cups") == [path]


def test_a_range_beyond_the_end_is_refused(hub: Hub, folder: Path) -> None:
    """Bytes that do not exist are answered with 416."""
    hub.add_repo("lab/cups").commit(folder)
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{hub.url}/datasets/lab/cups/resolve/main/README.md", "bytes=10-12")
    caught.value.close()

    assert caught.value.code == 416
    assert caught.value.headers["Content-Range"] == "bytes */10"
