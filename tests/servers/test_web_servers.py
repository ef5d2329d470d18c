# SPDX-License-Identifier: Apache-2.0
"""nginx and the file server of the benchmarks answer alike where our code depends on it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from robostream.testing import serve_files
from tests.fixture_datasets import FIXTURES
from tests.servers.nginx import serve_nginx

FIXTURE = FIXTURES / "av1_multifile"
DATA = "data/chunk-000/file-000.parquet"


@pytest.fixture(params=["nginx", "files"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Each of the two servers, over a dataset."""
    starting = serve_nginx(FIXTURE, tmp_path) if request.param == "nginx" else serve_files(FIXTURE)
    with starting as url:
        yield url


def answer(url: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status, dict(response.headers), response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, dict(error.headers), error.read()


@pytest.mark.parametrize(
    ("wanted", "start", "stop"),
    [("bytes=0-3", 0, 4), ("bytes=100-", 100, None), ("bytes=-3", -3, None)],
)
def test_ranges_are_exact(server: str, wanted: str, start: int, stop: int | None) -> None:
    """A range is exact, and Content-Range describes it."""
    content = (FIXTURE / DATA).read_bytes()
    status, fields, body = answer(f"{server}/{DATA}", Range=wanted)

    assert status == 206
    assert body == content[start:stop]
    first = content.index(body) if start >= 0 else len(content) + start
    assert fields["Content-Range"] == f"bytes {first}-{first + len(body) - 1}/{len(content)}"


def test_what_cannot_be_answered(server: str) -> None:
    """The status is 416 beyond the end, 404 for a missing file, 412 for another ETag."""
    size = (FIXTURE / DATA).stat().st_size

    assert answer(f"{server}/{DATA}", Range=f"bytes={size}-")[0] == 416
    assert answer(f"{server}/none")[0] == 404
    assert answer(f"{server}/{DATA}", **{"If-Match": '"other"'})[0] == 412


def test_heads_say_size_and_etag(server: str) -> None:
    """The ETag stays the same between requests."""
    heads = [answer(f"{server}/{DATA}", "HEAD") for _ in range(2)]
    fields = heads[0][1]

    assert int(fields["Content-Length"]) == (FIXTURE / DATA).stat().st_size
    assert fields["Accept-Ranges"] == "bytes"
    assert fields["ETag"]
    assert fields["ETag"] == heads[1][1]["ETag"]
    assert answer(f"{server}/{DATA}", **{"If-Match": fields["ETag"]})[0] == 200


def test_folders_are_lists_of_links(server: str) -> None:
    """Fsspec's HTTP filesystem finds the files."""
    fs, path = fsspec.core.url_to_fs(f"{server}/meta/")
    found = sorted(name.removeprefix(f"{server}/") for name in fs.find(path))

    assert found == sorted(
        file.relative_to(FIXTURE).as_posix()
        for file in (FIXTURE / "meta").rglob("*")
        if file.is_file()
    )


def test_nginx_forbids_what_is_closed(tmp_path: Path) -> None:
    """Files in closed/ are denied."""
    (tmp_path / "root" / "closed").mkdir(parents=True)
    (tmp_path / "root" / "closed" / "file").write_text("secret")
    (tmp_path / "work").mkdir()
    with serve_nginx(tmp_path / "root", tmp_path / "work") as url:
        assert answer(f"{url}/closed/file")[0] == 403


def test_a_missing_nginx_is_a_reason_or_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests without nginx are skipped with a hint, or fail if REQUIRE_NGINX=1."""
    monkeypatch.setattr("tests.servers.nginx.shutil.which", lambda *_, **__: None)
    monkeypatch.delenv("REQUIRE_NGINX", raising=False)
    with (
        pytest.raises(pytest.skip.Exception, match="scripts/get_nginx"),
        serve_nginx(tmp_path, tmp_path),
    ):
        pass
    monkeypatch.setenv("REQUIRE_NGINX", "1")
    with (
        pytest.raises(pytest.fail.Exception, match="REQUIRE_NGINX is set"),
        serve_nginx(tmp_path, tmp_path),
    ):
        pass
