# SPDX-License-Identifier: Apache-2.0
"""A dataset of many small files, and its epoch from local disk."""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from robostream import config
from robostream.tools import SynthSpec, make_dataset
from tests.device.test_upload import recode
from tests.fixture_datasets import copy_of
from tests.loader.streams import open_loader, open_stream
from tests.remote.digest import EpochDigest, digest_epoch
from tests.remote.program import Report, run_program
from tests.remote.stores import Served, serve
from tests.servers.ports import forget_servers
from tests.servers.s3 import S3Endpoint

Pair = tuple[Path, Path]
Serve = Callable[[str], Served]
BATCH_SIZE = 8


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cameras, 24 episodes, a file of each camera for about two of them."""
    config.quiet_encoders()
    root = tmp_path_factory.mktemp("remote") / "cups"
    spec = SynthSpec(
        episodes=24,
        min_frames=12,
        max_frames=24,
        cameras=2,
        width=64,
        height=48,
        codec="h264",
        gop=6,
        crf=12,
        video_file_mb=0.08,
        data_file_mb=0.01,
    )
    make_dataset(root, spec)
    return root


@pytest.fixture(scope="session")
def local(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The report of a program that reads two epochs from local disk."""
    stream = {"repo_id": "lab/cups", "root": str(dataset)}
    return stream_epochs(tmp_path_factory.mktemp("local"), stream, {}, epochs=2)


@pytest.fixture
def served(dataset: Path, tmp_path: Path, s3: S3Endpoint) -> Iterator[Serve]:
    """Serves the dataset from a store, until the test ends."""
    with contextlib.ExitStack() as stack:

        def start(place: str) -> Served:
            work = tmp_path / f"server-{place}"
            work.mkdir()
            return stack.enter_context(serve(place, dataset, work, s3))

        yield start


def stream_epochs(
    home: Path, stream: dict[str, Any], environment: dict[str, str], **options: Any
) -> Report:
    """Run a program with one worker process over a stream of one rank."""
    settings = {"rank": 0, "world_size": 1, "return_uint8": True} | stream
    loader = {"batch_size": BATCH_SIZE, "num_workers": 1} | options
    return run_program(home, settings, environment, **loader)


@pytest.fixture
def unknown_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Separate caches, and no known servers."""
    forget_servers(tmp_path / "home", monkeypatch)
    yield
    forget_servers(tmp_path / "home", monkeypatch)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """Two datasets with different images and actions, but equal file names, sizes and times."""
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
    """Pad an MP4 to a size with a box that readers skip."""
    more = size - path.stat().st_size
    with path.open("ab") as file:
        file.write(struct.pack(">I4s", more, b"free").ljust(more, b"\0"))


@pytest.fixture(scope="session")
def truths(pair: Pair) -> tuple[EpochDigest, ...]:
    """The epochs of both from local disk."""
    digests = tuple(digest_epoch(open_loader(open_stream(root), 8)) for root in pair)
    assert digests[0].indices == digests[1].indices
    assert digests[0].values != digests[1].values
    return digests
