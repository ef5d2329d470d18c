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
    """Ranges of small files, and of large ones on another host, are exact."""
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


MP4 = "datasets/lab/cups/resolve/main/videos/chunk-007/file.mp4"


def status_of(url: str, **headers: str) -> int:
    """Return the status of an answer, whatever it is."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def target_of(hub: Hub, **headers: str) -> str:
    """Return where a large file is redirected to."""
    with urllib.request.urlopen(
        urllib.request.Request(f"{hub.url}/{MP4}", headers=headers)
    ) as response:
        return str(response.url)


def test_signed_addresses_hold_for_a_number_of_uses(hub: Hub, folder: Path) -> None:
    """A used URL is denied, while the Hub signs new ones."""
    hub.add_repo("lab/cups").commit(folder)
    hub.signer.uses = 2
    target = target_of(hub)

    assert [status_of(target) for _ in range(3)] == [200, 403, 403]
    assert status_of(target_of(hub)) == 200


def test_signed_addresses_expire(hub: Hub, folder: Path) -> None:
    """An expired URL is denied, and so is another path with the same signature."""
    hub.add_repo("lab/cups").commit(folder)
    target = target_of(hub)
    assert status_of(target.replace("file.mp4", "other.mp4")) == 403

    hub.signer.lifetime_s = -1.0
    assert status_of(f"{hub.url}/{MP4}") == 403


def test_the_other_host_refuses_tokens(hub: Hub, folder: Path) -> None:
    """A request with the token is an error; one with the signature alone is served."""
    hub.add_repo("lab/cups", token="hf_key").commit(folder)
    with pytest.raises(urllib.error.HTTPError) as caught:
        target_of(hub, Authorization="Bearer hf_key")  # urllib carries it along
    caught.value.close()

    assert caught.value.code == 400
    assert status_of(f"{hub.url}/{MP4}") == 404
    path = HfApi(endpoint=hub.url, token="hf_key").hf_hub_download(
        "lab/cups",
        "videos/chunk-007/file.mp4",
        repo_type="dataset",
        cache_dir=folder.with_name("home"),
    )
    assert Path(path).read_bytes() == (folder / "videos/chunk-007/file.mp4").read_bytes()


def test_gated_repos_are_seen_and_not_read(hub: Hub, folder: Path) -> None:
    """Anyone may list a gated repo; its files need access."""
    hub.add_repo("lab/cups", token="hf_key", gated=True).commit(folder)
    readme = f"{hub.url}/datasets/lab/cups/resolve/main/README.md"

    assert status_of(f"{hub.url}/api/datasets/lab/cups") == 200
    assert status_of(readme) == 403
    assert status_of(readme, Authorization="Bearer hf_key") == 200


def test_private_buckets_need_their_token(hub: Hub, folder: Path) -> None:
    """Private buckets need a token, like private repos."""
    hub.add_bucket("lab/cups", folder, token="hf_key")
    readme = f"{hub.url}/buckets/lab/cups/resolve/README.md"

    assert status_of(readme) == 404
    assert status_of(readme, Authorization="Bearer hf_key") == 200


def test_requests_are_counted_by_path_and_kind(hub: Hub, folder: Path) -> None:
    """A large file costs one request to the Hub and one to the other host."""
    hub.add_repo("lab/cups").commit(folder)
    for _ in range(2):
        target_of(hub)

    assert hub.kinds() == {"resolve": 2, "lfs": 2}
    assert hub.counts()["resolve", f"/{MP4}"] == 2
