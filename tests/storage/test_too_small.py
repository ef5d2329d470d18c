# SPDX-License-Identifier: Apache-2.0
"""A cache that cannot hold what a run reads fetches hardly more than no cache."""

from __future__ import annotations

import math
import subprocess
from pathlib import Path

import pytest

from robostream import config
from robostream.storage import Cache, open_cached_file
from tests.parameters import long_rows_except
from tests.remote.fetched_bytes import fetched_bytes
from tests.servers.required import lacking
from tests.storage.memory_remote import BLOCK, Remote, block_paths, disk_bytes

SIZE = 20 * BLOCK
# docs/cache.md states this number. An epoch measures 0.93 to 1.14: a part is 3 % of this small
# dataset, and a thread that fetches ahead may meet the decoder in the middle of one.
MOST = 1.25


def epoch_bytes(dataset: Path, folder: Path, limit: int | None) -> int:
    """Return the bytes that are fetched in one epoch."""
    return fetched_bytes(dataset, folder, limit, batch_size=8)[0]


@pytest.fixture(scope="module")
def without(small_dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> int:
    """What an epoch without a cache fetches."""
    return epoch_bytes(small_dataset, tmp_path_factory.mktemp("none"), 0)


@pytest.mark.parametrize(
    ("share", "memory_bytes"),
    long_rows_except([(0.1, 32 << 20), (0.5, 32 << 20), (0.5, 200_000)], (0.5, 32 << 20)),
)
def test_a_cache_smaller_than_the_dataset(
    small_dataset: Path,
    without: int,
    tmp_path: Path,
    share: float,
    memory_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This holds for any limit and any memory for prefetching, in an empty and in a full cache."""
    monkeypatch.setattr(config, "PREFETCH_MEMORY_BYTES", memory_bytes, raising=False)
    limit = int(share * without)
    Cache(tmp_path, limit, BLOCK)  # small blocks, so that a part has several
    for _ in range(2):  # the second server has another address, so nothing in the cache is from it
        fetched = epoch_bytes(small_dataset, tmp_path, limit)

        assert fetched <= MOST * without
        assert disk_bytes(tmp_path) <= limit


def test_an_announced_use_outlives_the_deletion_of_an_empty_file(tmp_path: Path) -> None:
    """Eviction deletes a block file without blocks; a reader that has it open creates a new one."""
    cache, remote = Cache(tmp_path, SIZE + 8 * BLOCK, BLOCK), Remote(SIZE)
    soon, other, later = (open_cached_file(cache, name, "1", SIZE) for name in "abc")
    with soon.claim(0, SIZE):  # creates the file
        created = block_paths(tmp_path)
    other.fill(0, remote.content)
    later.fill(0, remote.content)  # evicts the other
    assert not set(created) & set(block_paths(tmp_path))
    soon.set_next_use(0, SIZE, 1.0)
    soon.fill(0, remote.content)
    later.fill(0, remote.content, next_use=math.inf)

    assert soon.missing(0, SIZE) == []


@pytest.mark.parametrize("options", ["ro", "size=1m"])
def test_a_cache_that_cannot_be_written(
    small_dataset: Path, without: int, tmp_path: Path, options: str
) -> None:
    """This holds for a read-only folder and for a full disk."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", options, "none", str(disk)]
    if subprocess.run(command, capture_output=True).returncode:
        lacking("MOUNT", "no small disk can be mounted here, which needs root")
    try:
        if options != "ro":
            (disk / "others").write_bytes(b"x" * 900_000)
        assert epoch_bytes(small_dataset, disk / "cache", None) <= MOST * without
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def test_what_is_prefetched_without_room_waits_in_memory(tmp_path: Path) -> None:
    """The bytes are fetched once, exactly, and dropped when they are released."""
    file, remote = open_cached_file(Cache(tmp_path, BLOCK, BLOCK), "a", "1", SIZE), Remote(SIZE)
    file.prefetch(100, SIZE - 100, 1.0, remote.fetch)
    remote.check(file, 100, 2 * BLOCK)
    remote.check(file, 2 * BLOCK, SIZE - 100)

    assert remote.fetched == [(100, SIZE - 100)]
    file.release(100, SIZE - 100, math.inf)
    remote.check(file, 100, 200)
    assert remote.fetched[1:] == [(100, 200)]


def test_nothing_is_prefetched_that_could_not_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without space on disk or in memory, bytes are fetched when they are read."""
    monkeypatch.setattr(config, "PREFETCH_MEMORY_BYTES", BLOCK)
    file, remote = open_cached_file(Cache(tmp_path, BLOCK, BLOCK), "a", "1", SIZE), Remote(SIZE)
    file.prefetch(0, SIZE, 1.0, remote.fetch)

    assert remote.fetched == []


def test_a_prefetch_does_not_drop_what_is_read_before_it(tmp_path: Path) -> None:
    """Of two parts that do not both fit, the one needed first stays on disk."""
    cache, remote = Cache(tmp_path, SIZE + 8 * BLOCK, BLOCK), Remote(SIZE)
    soon, later = (open_cached_file(cache, name, "1", SIZE) for name in "ab")
    soon.prefetch(0, SIZE, 1.0, remote.fetch)
    later.prefetch(0, SIZE, 2.0, remote.fetch)

    assert soon.missing(0, SIZE) == []
    assert len(remote.fetched) == 2
    for file in (soon, later):
        remote.check(file, 0, SIZE)
    assert len(remote.fetched) == 2
    soon.release(0, SIZE, 9.0)
    later.release(0, SIZE, 10.0)
    third = open_cached_file(cache, "c", "1", SIZE)
    third.prefetch(0, SIZE, 3.0, remote.fetch)
    assert third.missing(0, SIZE) == []
