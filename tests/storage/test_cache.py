# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from robostream import config
from robostream.cli.main import main
from robostream.errors import CacheError
from robostream.storage import Cache, cache_limit, open_cached_file
from tests.storage.memory_remote import BLOCK, Remote, block_paths, no_fetch

SIZE = 20 * BLOCK


@pytest.mark.parametrize("name", ["notes.txt", "blocks", "lock", ".robostream-cache.txt"])
def test_a_folder_that_is_not_a_cache_is_refused(tmp_path: Path, name: str) -> None:
    """A folder with content but no marker is not a cache; nothing in it is touched."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(CacheError, match="give it a folder of its own"):
        Cache(tmp_path, 10**6)

    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


@pytest.mark.parametrize(
    "mark",
    [
        "",
        "[]",
        '{"format": "robostream cache", "version": 2, "block_bytes": 4096}',
        '{"format": "robostream cache", "version": 1, "block_bytes": 1000}',
        '{"format": "something", "version": 1, "block_bytes": 4096}',
    ],
)
def test_a_cache_of_another_version_is_refused(tmp_path: Path, mark: str) -> None:
    """A marker of an unknown version is an error."""
    (tmp_path / "robostream-cache.json").write_text(mark)

    with pytest.raises(CacheError, match="of version 1, found"):
        Cache(tmp_path, 10**6)


def test_an_existing_cache_has_its_own_size_of_blocks(tmp_path: Path) -> None:
    """Processes with another default read and fill the same blocks."""
    remote = Remote(SIZE)
    remote.check(open_cached_file(Cache(tmp_path, 10**6, 2 * BLOCK), "a", "1", SIZE), 0, 1)

    assert remote.fetched == [(0, 2 * BLOCK)]
    assert open_cached_file(Cache(tmp_path, 10**6, BLOCK), "a", "1", SIZE).read(0, 1, no_fetch)


def test_many_may_make_the_same_cache_at_once(tmp_path: Path) -> None:
    """Processes that create the same cache at once share it."""
    for number in range(20):
        folder = tmp_path / str(number)
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _, folder=folder: Cache(folder, 10**6), range(4)))
        names = sorted(path.name for path in folder.iterdir())
        assert names == ["blocks", "files", "leases", "robostream-cache.json"]


def test_clear_deletes_what_was_fetched_and_nothing_else(tmp_path: Path) -> None:
    """Foreign files in the folder stay, whatever their names; readers continue."""
    cache, remote = Cache(tmp_path / "cache", 10**6, BLOCK), Remote(SIZE)
    file = open_cached_file(cache, "a", "1", SIZE)
    remote.check(file, 0, SIZE)
    foreign = [tmp_path / "cache" / name for name in ("x", "blocks/x", f"blocks/{'0' * 64}")]
    foreign.append(tmp_path / "cache/leases/notes")
    for path in foreign:
        path.write_text("not the cache's")
    (tmp_path / "cache/blocks" / ("f" * 64)).symlink_to(tmp_path / "cache/x")
    freed = cache.clear()

    assert freed >= SIZE
    assert all(path.read_text() == "not the cache's" for path in foreign)
    assert len(block_paths(tmp_path / "cache")) == 3
    assert cache.info().used_bytes == 0
    remote.fetched.clear()
    remote.check(file, 0, SIZE)
    remote.check(file, 0, SIZE)
    assert remote.fetched == [(0, SIZE)]
    assert [kept.kept_bytes for kept in cache.info().files] == [SIZE]


@pytest.mark.parametrize("is_head_lost", [False, True])
def test_a_restart_of_the_machine_keeps_what_is_whole(tmp_path: Path, is_head_lost: bool) -> None:
    """The bytes in use are counted again; only a file that lost its header is deleted."""
    remote = Remote(SIZE)
    cache = Cache(tmp_path, 10**6, BLOCK)
    remote.check(open_cached_file(cache, "a", "1", SIZE), 0, SIZE)
    (path,) = block_paths(tmp_path)
    remote.check(open_cached_file(cache, "b", "1", SIZE), 0, BLOCK)
    used = cache.info().used_bytes
    if is_head_lost:
        with open(path, "r+b") as file:
            file.write(b"\0" * 4096)
    (tmp_path / "lock").write_bytes(b"as of another start of the machine")
    again = Cache(tmp_path, 10**6, BLOCK)
    remote.check(open_cached_file(again, "b", "1", SIZE), BLOCK, 2 * BLOCK)

    assert path.exists() != is_head_lost
    if not is_head_lost:
        assert open_cached_file(again, "a", "1", SIZE).read(0, SIZE, no_fetch) == remote.content
        assert again.info().used_bytes == used + BLOCK


def test_a_cache_that_was_deleted_under_a_run_does_not_end_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After `rm -rf` of the folder, reads continue, with one warning."""
    cache, remote = Cache(tmp_path / "cache", 10**6, BLOCK), Remote(SIZE)
    remote.check(open_cached_file(cache, "a", "1", SIZE), 0, SIZE)
    shutil.rmtree(tmp_path / "cache")
    for name in ("a", "b"):
        remote.check(open_cached_file(cache, name, "1", SIZE), 0, SIZE)

    assert len(caplog.records) == 1
    assert "no longer written" in caplog.text


def test_a_folder_that_cannot_be_made_does_not_end_a_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bytes are read from their store, with one warning."""
    (tmp_path / "file").write_text("")
    cache, remote = Cache(tmp_path / "file/cache", 10**6), Remote(SIZE)
    file = open_cached_file(cache, "a", "1", SIZE)
    file.set_next_use(0, 1, 1)
    for _ in range(2):
        remote.check(file, 5, SIZE)

    assert len(caplog.records) == 1


def test_the_default_limit_is_half_of_what_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument wins over $ROBOSTREAM_CACHE_LIMIT; both accept texts such as 2GiB."""
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize

    assert cache_limit(tmp_path / "not/there/yet", None) == pytest.approx(free / 2, rel=0.2)
    assert cache_limit(tmp_path, "200GB") == 200 * 10**9
    with pytest.raises(ValueError, match="want a size such as"):
        cache_limit(tmp_path, "much")
    monkeypatch.setenv("ROBOSTREAM_CACHE_LIMIT", "3GiB")
    assert cache_limit(tmp_path, None) == 3 * 1024**3
    assert cache_limit(tmp_path, 5) == 5


def test_the_command_shows_and_clears(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`robostream cache info` prints text and JSON; `clear` frees; a missing cache is no error."""
    folder, remote = tmp_path / "cache", Remote(SIZE)
    arguments = ["--cache-dir", str(folder)]
    assert main(["cache", "info", *arguments]) == 0
    assert "no cache there" in capsys.readouterr().out
    assert not folder.exists()
    remote.check(
        open_cached_file(Cache(folder, 10**6, BLOCK), "s3://bucket/a.mp4", "1", SIZE), 0, 5 * BLOCK
    )
    assert main(["cache", "info", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "s3://bucket/a.mp4  20.0 KiB  80.0 KiB" in shown
    assert main(["cache", "info", "--json", *arguments]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["files"] == [
        {"name": "s3://bucket/a.mp4", "size_bytes": SIZE, "kept_bytes": 5 * BLOCK}
    ]
    assert main(["cache", "clear", "--json", *arguments]) == 0
    assert json.loads(capsys.readouterr().out)["freed_bytes"] >= 5 * BLOCK
    assert block_paths(folder) == []


def test_a_size_that_is_none_is_a_wrong_call(capsys: pytest.CaptureFixture[str]) -> None:
    """The message shows a valid size."""
    with pytest.raises(SystemExit, match="2"):
        main(["cache", "warm", "lab/cups", "--cache-limit", "much"])
    assert "want a size such as 2GiB" in capsys.readouterr().err


def test_the_default_folder_is_below_robostreams_own() -> None:
    """$ROBOSTREAM_CACHE moves it with all other caches."""
    assert str(config.cache_home()).startswith(os.environ["ROBOSTREAM_CACHE"])
