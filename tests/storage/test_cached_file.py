# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from robostream.storage import Cache, open_cached_file
from tests.storage.memory_remote import BLOCK, Remote, block_paths, disk_bytes, no_fetch

SIZE = 10 * BLOCK + 100
LIMIT = 10_000_000


@pytest.fixture
def remote() -> Remote:
    return Remote(SIZE)


def cache_in(folder: Path, limit: int = LIMIT) -> Cache:
    return Cache(folder / "cache", limit, BLOCK)


def test_only_missing_blocks_are_fetched_neighbours_together(
    tmp_path: Path, remote: Remote
) -> None:
    """Cached bytes are not fetched again; a gap of several blocks is one request."""
    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    remote.check(file, BLOCK + 5, BLOCK + 6)
    remote.check(file, 6 * BLOCK, 7 * BLOCK)
    remote.check(file, 10, SIZE)

    assert remote.fetched[:2] == [(BLOCK, 2 * BLOCK), (6 * BLOCK, 7 * BLOCK)]
    assert remote.fetched[2:] == [(0, BLOCK), (2 * BLOCK, 6 * BLOCK), (7 * BLOCK, SIZE)]


def test_a_second_process_fetches_nothing(tmp_path: Path, remote: Remote) -> None:
    """A second Cache on the same folder, as in another process, finds all bytes."""
    remote.check(open_cached_file(cache_in(tmp_path), "a", "1", SIZE), 0, SIZE)
    again = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)

    assert again.missing(0, SIZE) == []
    assert again.read(0, SIZE, no_fetch) == remote.content
    assert again.read(3, SIZE - 2, no_fetch) == remote.content[3:-2]
    assert again.read(7, 7, no_fetch) == b""


def test_a_fill_keeps_whole_blocks_only(tmp_path: Path, remote: Remote) -> None:
    """A partly filled block is not valid; the last block is short."""
    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    file.fill(1, remote.content[1 : 2 * BLOCK + 1])
    assert file.missing(0, SIZE) == [(0, BLOCK), (2 * BLOCK, SIZE)]
    file.fill(9 * BLOCK + 1, remote.content[9 * BLOCK + 1 :])

    assert file.missing(0, SIZE) == [(0, BLOCK), (2 * BLOCK, 10 * BLOCK)]


def test_another_version_is_another_file(tmp_path: Path, remote: Remote) -> None:
    """A file with a new ETag or size is fetched again; the old version is still served."""
    cache, new = cache_in(tmp_path), Remote(SIZE, seed=1)
    old_file, new_file = (
        open_cached_file(cache, "a", "1", SIZE),
        open_cached_file(cache, "a", "2", SIZE),
    )
    remote.check(old_file, 0, SIZE)
    new.check(new_file, 0, SIZE)

    assert new.fetched == [(0, SIZE)]
    assert old_file.read(0, SIZE, no_fetch) == remote.content
    assert open_cached_file(cache, "a", "1", SIZE + 1).missing(0, SIZE) == [(0, SIZE + 1)]


def test_a_fetch_of_the_wrong_length_is_not_kept(tmp_path: Path) -> None:
    """Too few or too many bytes are an error that names the file, without its secrets."""
    file = open_cached_file(cache_in(tmp_path), "https://me:secret@host/a?token=secret", "1", SIZE)
    for content in (b"", b"x" * (SIZE + 1)):
        with pytest.raises(OSError, match=r"^https://host/a\?\.\.\.: wanted bytes 0 to") as error:
            file.read(0, SIZE, lambda start, stop, content=content: content)
        assert "secret" not in str(error.value)

    assert file.missing(0, SIZE) == [(0, SIZE)]


def test_a_failed_fetch_leaves_the_claim_free(tmp_path: Path, remote: Remote) -> None:
    """An error of the fetch is raised, and the next reader does not wait for a dead claim."""

    def fail(start: int, stop: int) -> bytes:
        raise ConnectionError("reset")

    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    with pytest.raises(ConnectionError):
        file.read(0, SIZE, fail)
    remote.check(open_cached_file(cache_in(tmp_path), "a", "1", SIZE), 0, SIZE)


def test_ranges_beyond_the_file_are_refused(tmp_path: Path) -> None:
    """A range outside the file raises ValueError."""
    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    for start, stop in [(-1, 5), (5, 4), (0, SIZE + 1)]:
        with pytest.raises(ValueError, match="want 0 <= start <= stop <="):
            file.read(start, stop, no_fetch)
    with pytest.raises(ValueError, match="nan"):
        file.set_next_use(0, 1, float("nan"))


def test_an_empty_file_is_read(tmp_path: Path) -> None:
    """An empty remote file has no blocks."""
    file = open_cached_file(cache_in(tmp_path), "a", "1", 0)
    file.fill(0, b"")

    assert file.read(0, 0, no_fetch) == b""
    assert file.missing(0, 0) == []


def test_one_of_many_that_miss_the_same_bytes_fetches_them(tmp_path: Path, remote: Remote) -> None:
    """Readers with separate caches, as in several processes, wait for the first one's fetch."""
    begin = threading.Barrier(8)

    def read(number: int) -> None:
        file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
        begin.wait()
        remote.check(file, number, SIZE)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(8)))

    assert remote.fetched == [(0, SIZE)]


def test_a_claim_gives_what_is_missing_to_callers_that_fetch_by_themselves(
    tmp_path: Path, remote: Remote
) -> None:
    """A prefetcher claims, fetches, fills; readers then find everything."""
    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    with file.claim(0, SIZE) as missing:
        for start, stop in missing:
            file.fill(start, remote.fetch(start, stop))

    assert file.read(0, SIZE, no_fetch) == remote.content


def test_no_secret_reaches_the_disk(tmp_path: Path, remote: Remote) -> None:
    """No file and no name contains the user, password or query of an address."""
    name = "https://hf_SECRET:hf_SECRET@host:8080/data/file.mp4?X-Amz-Signature=SECRET#SECRET"
    cache = cache_in(tmp_path)
    file = open_cached_file(cache, name, "1", SIZE)
    remote.check(file, 0, SIZE)

    assert [kept.name for kept in cache.info().files] == ["https://host:8080/data/file.mp4?..."]
    for path in (tmp_path / "cache").rglob("*"):
        assert "SECRET" not in path.name
        assert path.is_dir() or b"SECRET" not in path.read_bytes()


@pytest.mark.parametrize("damage", ["zeros", "cut", "flip", "head", "marks"])
def test_damage_behind_a_mark_is_noticed_and_fetched_again(
    tmp_path: Path, remote: Remote, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A block damaged by a power cut or a failing disk is never served."""
    remote.check(open_cached_file(cache_in(tmp_path), "a", "1", SIZE), 0, SIZE)
    (path,) = block_paths(tmp_path / "cache")
    data_at = path.stat().st_size - 11 * BLOCK
    with open(path, "r+b") as content:
        if damage == "cut":
            content.truncate(data_at + 3 * BLOCK + 10)
        else:
            at = {"zeros": data_at + 3 * BLOCK, "flip": data_at + 100, "head": 20, "marks": 4100}
            content.seek(at[damage])
            content.write(b"\0" * BLOCK if damage == "zeros" else b"\xaa")
    remote.fetched.clear()
    file = open_cached_file(cache_in(tmp_path), "a", "1", SIZE)
    remote.check(file, 0, SIZE)
    wanted = {
        "zeros": [(3 * BLOCK, 4 * BLOCK)],
        "cut": [(3 * BLOCK, SIZE)],
        "flip": [(0, BLOCK)],
        "marks": [(0, BLOCK)],
        "head": [(0, SIZE)],
    }

    assert remote.fetched == wanted[damage]
    told = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert len(told) == (damage in ("zeros", "cut", "flip"))
    assert (
        open_cached_file(cache_in(tmp_path), "a", "1", SIZE).read(0, SIZE, no_fetch)
        == remote.content
    )


def test_the_limit_holds_and_old_blocks_go(tmp_path: Path) -> None:
    """Reading more than fits respects the limit; the bytes read last are still cached."""
    cache = cache_in(tmp_path, limit=1_000_000)
    remotes = [Remote(300_000, seed) for seed in range(8)]
    files = [open_cached_file(cache, str(seed), "1", 300_000) for seed in range(8)]
    for remote, file in zip(remotes, files, strict=True):
        remote.check(file, 0, 300_000)
        assert disk_bytes(tmp_path / "cache") <= 1_000_000
        assert cache.info().used_bytes <= 1_000_000
    files[-1].read(0, 300_000, no_fetch)

    assert files[0].missing(0, 300_000) == [(0, 300_000)]


def test_what_a_living_run_needs_soonest_is_kept(tmp_path: Path) -> None:
    """In a run the latest next use is evicted first; hints of dead processes expire."""
    size = 64 * BLOCK
    limit = 3 * size + 60_000
    cache, other = cache_in(tmp_path, limit), cache_in(tmp_path, limit)
    remotes = {name: Remote(size, ord(name)) for name in "abcd"}
    files = {name: open_cached_file(cache, name, "1", size) for name in "abcd"}
    for name, when in zip("abc", (1, 3, 2), strict=True):
        files[name].set_next_use(0, size, when)
        remotes[name].check(files[name], 0, size)
    another = open_cached_file(other, "d", "1", size)
    another.set_next_use(0, size, 0)
    remotes["d"].check(another, 0, size)
    kept = {name: not file.missing(0, size) for name, file in files.items()}

    assert kept == {"a": True, "b": False, "c": True, "d": True}
    # `cache` ends, and with it what it hinted at: of "a" and "c", neither counts any more.
    del cache, files
    file = open_cached_file(other, "b", "1", size)
    file.set_next_use(0, size, 10**9)
    remotes["b"].check(file, 0, size)
    assert another.missing(0, size) == file.missing(0, size) == []


def test_many_files_do_not_stay_open(tmp_path: Path) -> None:
    """The number of open files is bounded, however many are read."""
    at_first = len(os.listdir("/proc/self/fd"))
    cache = cache_in(tmp_path)
    files = [open_cached_file(cache, str(number), "1", BLOCK) for number in range(300)]
    remote = Remote(BLOCK)
    for file in files:
        remote.check(file, 0, BLOCK)
    before = len(os.listdir("/proc/self/fd"))
    for file in files:
        file.read(0, BLOCK, no_fetch)

    assert len(os.listdir("/proc/self/fd")) <= before <= at_first + 150


def test_a_cache_too_small_for_anything_only_warns(
    tmp_path: Path, remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    """With a limit of 0 every read is a fetch, with one warning."""
    file = open_cached_file(cache_in(tmp_path, limit=0), "a", "1", SIZE)
    remote.check(file, 0, SIZE)
    remote.check(file, 0, SIZE)

    assert remote.fetched == [(0, SIZE)] * 2
    assert len(caplog.records) == 1
    assert "has no space for" in caplog.text
