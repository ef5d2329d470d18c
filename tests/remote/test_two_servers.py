# SPDX-License-Identifier: Apache-2.0
"""Files of one name, size and version on two servers are two files in every cache."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from robostream.storage import CacheSettings, FileOpener, as_location
from tests.loader.streams import open_loader, open_stream
from tests.remote.conftest import Pair
from tests.remote.digest import EpochDigest, digest_epoch
from tests.servers.nginx import serve_nginx
from tests.servers.s3 import S3Endpoint, serve_s3

pytestmark = pytest.mark.long


@contextlib.contextmanager
def two_s3_servers(pair: Pair, work: Path, s3: S3Endpoint) -> Iterator[list[dict[str, Any]]]:
    """Yield the arguments of a stream for each: one address on two endpoints."""
    (work / "s3").mkdir()
    with serve_s3(work / "s3") as other:
        servers, place = (s3, other), f"two-servers/{work.name}"
        roots = [server.upload(root, place) for server, root in zip(servers, pair, strict=True)]
        assert roots[0] == roots[1]
        yield [{"root": roots[0], "storage_options": server.storage_options} for server in servers]


@contextlib.contextmanager
def two_queries(pair: Pair, work: Path) -> Iterator[list[dict[str, Any]]]:
    """Yield the arguments of a stream for each: addresses that differ in their query alone."""
    (work / "nginx").mkdir()
    folder = Path(f"{pair[0].parents[1]}/$arg_set/av1_multifile")
    with serve_nginx(folder, work / "nginx") as url:
        yield [{"root": f"{url}/?set={name}"} for name in ("a", "b")]


@pytest.mark.parametrize("place", ["s3", "query"])
@pytest.mark.parametrize("keeps", ["cache_dir", "frame_cache_dir"])
@pytest.mark.usefixtures("unknown_servers")
def test_two_servers_deliver_each_its_own_frames(
    pair: Pair,
    truths: tuple[EpochDigest, ...],
    s3: S3Endpoint,
    tmp_path: Path,
    place: str,
    keeps: str,
) -> None:
    """This holds for runs at once and in turn, and with cached decoded frames."""
    kept = {"cache_dir": tmp_path / "cache"} | {keeps: tmp_path / keeps}
    serve = two_s3_servers(pair, tmp_path, s3) if place == "s3" else two_queries(pair, tmp_path)
    with serve as servers:
        for _ in range(2):
            streams = [open_stream(**kept, **server) for server in servers]
            digests = [digest_epoch(open_loader(stream, 8)) for stream in streams]

            assert tuple(digests) == truths


@pytest.mark.parametrize(
    ("place", "url", "option"),
    [
        ("lab/cups", "s3://lab/cups", "endpoint_url"),
        ("buckets/lab/cups/resolve", "hf://buckets/lab/cups", "endpoint"),
    ],
)
@pytest.mark.usefixtures("unknown_servers")
def test_blocks_of_equal_versions_belong_to_their_endpoint(
    tmp_path: Path, place: str, url: str, option: str
) -> None:
    """This holds even if both servers give equal ETags and sizes, as nginx does for equal times."""
    settings = CacheSettings(tmp_path / "cache")
    anonymous = {"anon": True} if option == "endpoint_url" else {"token": False}
    with contextlib.ExitStack() as stack:
        contents = []
        for name in ("a", "b"):
            folder, work = tmp_path / name / place, tmp_path / f"nginx-{name}"
            folder.mkdir(parents=True)
            work.mkdir()
            (folder / "file.bin").write_bytes(name.encode() * 1000)
            os.utime(folder / "file.bin", (1_700_000_000, 1_700_000_000))
            endpoint = stack.enter_context(serve_nginx(tmp_path / name, work))
            location = as_location(url, anonymous | {option: endpoint}, settings)
            contents.append(FileOpener(location).open("file.bin").read(0, 1000))

    assert contents == [b"a" * 1000, b"b" * 1000]
