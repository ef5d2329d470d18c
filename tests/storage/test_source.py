# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import pickle
from pathlib import Path

import fsspec
import numpy as np
import pytest
from huggingface_hub import HfFileSystem
from hypothesis import given
from hypothesis import strategies as st

from robostream.errors import DamagedFileError, MissingFileError, UnreachableError
from robostream.storage import ByteSource, LocalSource, as_location, open_source
from robostream.storage.fsspec_store import FsspecSource
from tests.servers.hub import Hub
from tests.threads import at_once

CONTENT = np.random.default_rng(0).integers(0, 256, 100_000).astype(np.uint8).tobytes()


@pytest.fixture(scope="module", params=["local", "fsspec"])
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ByteSource:
    """The same bytes behind every kind of source."""
    if request.param == "local":
        path = tmp_path_factory.mktemp("bytes") / "file.bin"
        path.write_bytes(CONTENT)
        return LocalSource(path)
    fs = fsspec.filesystem("memory")
    fs.pipe_file("/source/file.bin", CONTENT)
    return FsspecSource(fs, "/source/file.bin", name="memory://source/file.bin")


@given(bounds=st.tuples(st.integers(0, 100_000), st.integers(0, 100_000)))
def test_any_range_reads_exactly_its_bytes(source: ByteSource, bounds: tuple[int, int]) -> None:
    """A read returns the bytes [start, stop) and no others."""
    start, stop = sorted(bounds)

    assert source.size() == len(CONTENT)
    assert source.read(start, stop) == CONTENT[start:stop]


def test_a_read_beyond_the_end_is_an_error(source: ByteSource) -> None:
    """Fewer bytes than asked for are never returned: the file is truncated."""
    with pytest.raises(DamagedFileError, match="99990 to 100010, got 10 of 20"):
        source.read(99_990, 100_010)


def test_many_threads_read_at_once(source: ByteSource) -> None:
    """Reads do not disturb each other."""

    def wrong(seed: int) -> list[int]:
        starts = np.random.default_rng(seed).integers(0, 99_000, 200).tolist()
        return [s for s in starts if source.read(s, s + 1000) != CONTENT[s : s + 1000]]

    assert at_once(4, wrong) == [[]] * 4


def test_a_source_pickles_as_its_address(tmp_path: Path) -> None:
    """A copy in another process opens the file anew."""
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    opened = LocalSource(path)
    opened.read(0, 10)
    copy = pickle.loads(pickle.dumps(opened))

    assert copy.name == str(path)
    assert copy.read(5, 15) == CONTENT[5:15]


def test_a_dropped_source_closes_its_file(tmp_path: Path) -> None:
    """No descriptor is left behind."""
    path = tmp_path / "file.bin"
    path.write_bytes(CONTENT)
    before = len(os.listdir("/proc/self/fd"))
    sources = [LocalSource(path) for _ in range(20)]
    for one in sources:
        one.read(0, 1)
    assert len(os.listdir("/proc/self/fd")) == before + 20
    del one, sources

    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("url", ["{folder}", "memory://nowhere"])
def test_a_missing_file_is_named(url: str, tmp_path: Path) -> None:
    """What is not there is a MissingFileError with its address."""
    missing = open_source(as_location(url.format(folder=tmp_path)), "videos/a.mp4")

    with pytest.raises(MissingFileError, match=r"videos/a\.mp4: there is no such file"):
        missing.size()
    with pytest.raises(MissingFileError, match=r"videos/a\.mp4: there is no such file"):
        missing.read(0, 10)


def test_a_location_opens_its_files(tmp_path: Path) -> None:
    """A file given relative to a local or a remote location is found."""
    (tmp_path / "a.mp4").write_bytes(CONTENT)
    fsspec.filesystem("memory").pipe_file("/place/a.mp4", CONTENT)
    for url in (tmp_path, "memory://place"):
        assert open_source(as_location(url), "a.mp4").read(3, 9) == CONTENT[3:9]


def test_the_hub_is_asked_for_the_range_and_no_more(hub: Hub, tmp_path: Path) -> None:
    """huggingface_hub would read megabytes ahead; a range costs its own bytes."""
    (tmp_path / "a.mp4").write_bytes(CONTENT)
    hub.add_repo("lab/cups").commit(tmp_path)
    fs = HfFileSystem(endpoint=hub.url, token=False, skip_instance_cache=True)
    source = FsspecSource(fs, "datasets/lab/cups/a.mp4", name="hf://datasets/lab/cups/a.mp4")

    assert source.read(1000, 1500) == CONTENT[1000:1500]
    assert [r.range for r in hub.requests if r.status == 206] == ["bytes=1000-1499"]


def test_a_network_failure_names_the_file() -> None:
    """What HTTP libraries raise arrives as an UnreachableError that says which file it was."""
    fs = HfFileSystem(endpoint="http://127.0.0.1:9", token=False, skip_instance_cache=True)
    source = FsspecSource(fs, "datasets/lab/cups@main/a.mp4", name="hf://datasets/lab/cups/a.mp4")

    with pytest.raises(UnreachableError, match=r"hf://datasets/lab/cups/a\.mp4.*network"):
        source.read(0, 10)
