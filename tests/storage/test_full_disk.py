# SPDX-License-Identifier: Apache-2.0
"""The disk is full: reads continue from the store, and one warning says so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream.storage import Cache, cache_quota, open_cached_file
from tests.servers.required import lacking
from tests.storage.memory_remote import BLOCK, Remote, disk_bytes, no_fetch
from tests.write.recording import file_size_limit

SIZE = 300 * BLOCK


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 1 MB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode:
        lacking("MOUNT", "no small disk can be mounted here, which needs root")
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_cache_leaves_room_on_a_small_disk(small_disk: Path) -> None:
    """With a limit beyond the disk, old blocks are evicted before the disk is full."""
    remote = Remote(SIZE)
    file = open_cached_file(Cache(small_disk / "cache", 10**9, BLOCK), "a", "1", SIZE)
    for start in range(0, SIZE, 10 * BLOCK):
        remote.check(file, start, start + 10 * BLOCK)
        disk = os.statvfs(small_disk)
        assert disk.f_bavail >= disk.f_blocks * 0.04

    assert disk_bytes(small_disk / "cache") > 700_000
    file.read(SIZE - 10 * BLOCK, SIZE, no_fetch)


def test_a_disk_that_others_fill_ends_writing_and_no_read(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """ENOSPC: cached bytes are served, others are fetched each time, with one warning."""
    monkeypatch.setattr(
        cache_quota, "_LEFT_SHARE", -1
    )  # nothing is left to others, so the disk fails
    remote = Remote(SIZE)
    file = open_cached_file(Cache(small_disk / "cache", 10**9, BLOCK), "a", "1", SIZE)
    for _ in range(2):
        for start in range(0, SIZE, 10 * BLOCK):
            remote.check(file, start, start + 10 * BLOCK)

    assert len(remote.fetched) < 60
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "No space left on device" in caplog.text
    again = open_cached_file(Cache(small_disk / "cache", 10**9, BLOCK), "a", "1", SIZE)
    for start in range(0, SIZE, 10 * BLOCK):
        remote.check(again, start, start + 10 * BLOCK)


def test_a_disk_full_of_others_files_is_not_filled_further(
    small_disk: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is written, and one warning says why."""
    cache, remote = Cache(small_disk / "cache", 10**9, BLOCK), Remote(SIZE)
    free = os.statvfs(small_disk).f_bavail * 4096
    (small_disk / "others").write_bytes(b"x" * (free - 6 * BLOCK))
    file = open_cached_file(cache, "a", "1", SIZE)
    for _ in range(2):
        remote.check(file, 0, SIZE)

    assert disk_bytes(small_disk / "cache") == 0
    assert len(caplog.records) == 1
    assert "has no space for" in caplog.text


def test_files_that_may_not_grow_end_writing_and_no_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A limit on file sizes has the effect of a full disk."""
    remote = Remote(SIZE)
    file = open_cached_file(Cache(tmp_path / "cache", 10**9, BLOCK), "a", "1", SIZE)
    with file_size_limit(100_000):
        for _ in range(2):
            remote.check(file, 5, SIZE)

    assert remote.fetched == [(5, SIZE)] * 2
    assert len(caplog.records) == 1
    assert "no longer written" in caplog.text
    assert "ulimit -f" in caplog.text
    assert "lower cache_limit" in caplog.text
    remote.check(open_cached_file(Cache(tmp_path / "cache", 10**9, BLOCK), "a", "1", SIZE), 0, SIZE)


def test_where_holes_cannot_be_punched_whole_files_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit holds on filesystems without holes; a mock, because every one here has them."""
    monkeypatch.setattr("robostream.storage.block_file.punch_hole", lambda *_: False)
    cache = Cache(tmp_path / "cache", 2 * SIZE, BLOCK)
    for number in range(5):
        remote = Remote(SIZE, number)
        remote.check(open_cached_file(cache, str(number), "1", SIZE), 0, SIZE)
        assert disk_bytes(tmp_path / "cache") <= 2 * SIZE
