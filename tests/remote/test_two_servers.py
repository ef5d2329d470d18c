# SPDX-License-Identifier: Apache-2.0
"""Files of one name, size and version on two servers are two files in every cache."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from robostream.storage import CacheSettings, Door, as_location
from tests.fixture_datasets import copy_of
from tests.loader.streams import open_loader, open_stream
from tests.loader.test_device import recode
from tests.remote.digest import EpochDigest, digest_epoch
from tests.servers.nginx import serve_nginx
from tests.servers.ports import forget_servers
from tests.servers.s3 import S3Endpoint, serve_s3

Pair = tuple[Path, Path]


@pytest.fixture(autouse=True)
def strangers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Caches of the test's own, and servers that nobody knows yet."""
    forget_servers(tmp_path / "home", monkeypatch)
    yield
    forget_servers(tmp_path / "home", monkeypatch)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two datasets with other pictures and actions, whose files agree in name, size and time."""
    folder = tmp_path_factory.mktemp("pair")
    roots = copy_of("av1_multifile", folder / "a"), copy_of("av1_multifile", folder / "b")
    for path in (roots[1] / "videos").rglob("*.mp4"):
        recode(path, "yuv420p")
    for scale, root in enumerate(roots, 1):
        for path in (root / "data").rglob("*.parquet"):
            _scale_actions(path, scale)
    for path in sorted(path for path in roots[0].rglob("*") if path.is_file()):
        twins = path, roots[1] / path.relative_to(roots[0])
        size = max(twin.stat().st_size for twin in twins) + 8
        for twin in twins:
            if twin.suffix == ".mp4":
                _pad(twin, size)
            os.utime(twin, (1_700_000_000, 1_700_000_000))
        assert twins[0].stat().st_size == twins[1].stat().st_size
    return roots


def _scale_actions(path: Path, scale: int) -> None:
    """Rewrite a table as one row group, which is decoded once for all processes."""
    table = pq.read_table(path)
    at, column = table.column_names.index("action"), table.column("action").combine_chunks()
    values = pc.multiply(column.values, pa.scalar(scale, pa.float32()))
    actions = type(column).from_arrays(values, type=column.type)
    table = table.set_column(at, table.schema.field("action"), actions)
    pq.write_table(table, path, compression="none", use_dictionary=False)


def _pad(path: Path, size: int) -> None:
    """Bring an MP4 to a size with a box that readers skip."""
    more = size - path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack(">I4s", more, b"free").ljust(more, b"\0"))


@pytest.fixture(scope="module")
def truths(pair: Pair) -> tuple[EpochDigest, ...]:
    """What local disk delivers of each."""
    digests = tuple(digest_epoch(open_loader(open_stream(root), 8)) for root in pair)
    assert digests[0].indices == digests[1].indices
    assert digests[0].values != digests[1].values
    return digests


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
def test_two_servers_deliver_each_its_own_frames(
    pair: Pair,
    truths: tuple[EpochDigest, ...],
    s3: S3Endpoint,
    tmp_path: Path,
    place: str,
    keeps: str,
) -> None:
    """Two runs that are open at once, and one after the other; with decoded frames kept too."""
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
def test_blocks_of_equal_versions_belong_to_their_endpoint(
    tmp_path: Path, place: str, url: str, option: str
) -> None:
    """Servers that give equal ETags and sizes to other bytes, as nginx does for equal times."""
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
            contents.append(Door(location).open("file.bin").read(0, 1000))

    assert contents == [b"a" * 1000, b"b" * 1000]
