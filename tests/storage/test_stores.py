# SPDX-License-Identifier: Apache-2.0
"""The contract of all stores: the same files behind each of them are the same."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robostream.errors import DamagedFileError, MissingFileError, NoListingError, StorageError
from robostream.storage import FileOpener, Location, as_location
from tests.parameters import examples
from tests.servers.hub import Hub, serve_hub
from tests.servers.s3 import S3Endpoint
from tests.threads import at_once

SIZE = 100_000
CONTENT = np.random.default_rng(0).integers(0, 256, SIZE).astype(np.uint8).tobytes()
FILES = {
    "meta/é #?.json": b"{}",
    "videos/top camera/a+1.mp4": CONTENT,
    "videos/empty.mp4": b"",
    "data/rows.parquet": b"rows",
}
VIDEO = "videos/top camera/a+1.mp4"
KINDS = ["local", "memory", "hub", "bucket", "folder of a bucket", "s3", "web"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files on a disk."""
    root = tmp_path_factory.mktemp("store") / "files"
    for name, content in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


@pytest.fixture(scope="module")
def hub_of_files(folder: Path) -> Iterator[Hub]:
    """A Hub that has them as a repo and as a bucket."""
    with serve_hub() as hub:
        hub.add_repo("lab/cups").commit(folder)
        hub.add_bucket("lab/cups", folder)
        hub.add_bucket("lab/more", folder.parent)
        yield hub


@pytest.fixture(scope="module", params=KINDS)
def location(request: pytest.FixtureRequest, folder: Path) -> Location:
    """The same files behind every kind of store."""
    kind = request.param
    if kind == "local":
        return as_location(folder)
    if kind == "memory":
        fsspec.filesystem("memory").put(str(folder), "/contract", recursive=True)
        return as_location("memory://contract")
    if kind == "s3":
        s3: S3Endpoint = request.getfixturevalue("s3")
        return as_location(s3.upload(folder, "contract/files"), s3.storage_options)
    hub: Hub = request.getfixturevalue("hub_of_files")
    if kind == "web":
        return as_location(f"{hub.url}/buckets/lab/cups/resolve/")
    urls = {
        "hub": "hf://datasets/lab/cups@main",
        "bucket": "hf://buckets/lab/cups",
        "folder of a bucket": f"hf://buckets/lab/more/{folder.name}",
    }
    return as_location(urls[kind], {"endpoint": hub.url, "token": False})


@given(bounds=st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)))
@settings(examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_range_reads_exactly_its_bytes(location: Location, bounds: tuple[int, int]) -> None:
    """A read returns the bytes [start, stop) and no others, whatever letters the name has."""
    start, stop = sorted(bounds)
    source = FileOpener(location).open(VIDEO)

    assert source.read(start, stop) == CONTENT[start:stop]
    assert source.size() == SIZE


def test_files_are_what_they_are(location: Location) -> None:
    """Small, empty and oddly named files have their sizes and content."""
    opener = FileOpener(location)
    for name, content in FILES.items():
        source = opener.open(name)

        assert source.size() == len(content)
        assert source.read(0, len(content)) == content
        assert name.rsplit("/")[-1] in source.name


def test_a_version_stays_while_the_file_does(location: Location) -> None:
    """A file's version is stable, and two files differ."""
    opener = FileOpener(location)

    assert opener.open(VIDEO).version() == opener.open(VIDEO).version() != ""
    assert opener.open(VIDEO).version() != opener.open("meta/é #?.json").version()


def test_files_are_listed_with_their_sizes(location: Location) -> None:
    """Listing finds all files below a folder; a web server raises NoListingError."""
    opener = FileOpener(location)
    wanted = {n: len(c) for n, c in sorted(FILES.items()) if n.startswith("videos/")}
    if location.url.startswith("http"):
        with pytest.raises(NoListingError, match="lists no files"):
            opener.list_files("videos", ".mp4")
    else:
        assert opener.list_files("videos", ".mp4") == wanted
        assert opener.list_files("videos", ".parquet") == {}
        assert opener.list_files("absent", ".mp4") == {}


def test_a_read_beyond_the_end_is_an_error(location: Location) -> None:
    """Fewer bytes than requested are an error: the file is truncated."""
    source = FileOpener(location).open(VIDEO)

    with pytest.raises(DamagedFileError, match="99990 to 100010, got 10 of 20"):
        source.read(99_990, 100_010)
    with pytest.raises(DamagedFileError, match="got 0 of 5"):
        source.read(SIZE + 10, SIZE + 15)


def test_a_missing_file_is_named(location: Location) -> None:
    """A missing file raises MissingFileError with its address."""
    missing = FileOpener(location).open("videos/none.mp4")

    with pytest.raises(MissingFileError, match=r"videos/none\.mp4: "):
        missing.size()
    with pytest.raises(FileNotFoundError, match=r"videos/none\.mp4: "):
        missing.read(0, 10)


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../a", "videos/../../a", "a//b", "", "a\nb", "s3://b/c"]
)
def test_names_stay_below_the_root(location: Location, name: str) -> None:
    """Hostile paths open and list nothing."""
    with pytest.raises(StorageError, match="below the dataset's root"):
        FileOpener(location).open(name)


def test_many_threads_read_at_once(location: Location) -> None:
    """Concurrent reads return the right bytes."""
    source = FileOpener(location).open(VIDEO)

    def wrong(seed: int) -> list[int]:
        starts = np.random.default_rng(seed).integers(0, SIZE - 1000, 20).tolist()
        return [s for s in starts if source.read(s, s + 1000) != CONTENT[s : s + 1000]]

    assert at_once(4, wrong) == [[]] * 4


def test_a_location_travels_to_other_processes(location: Location) -> None:
    """A pickled copy opens the same files."""
    copy = pickle.loads(pickle.dumps(location))

    assert FileOpener(copy).open(VIDEO).read(3, 9) == CONTENT[3:9]
