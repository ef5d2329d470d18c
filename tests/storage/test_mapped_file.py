# SPDX-License-Identifier: Apache-2.0
"""Files made here and mapped by many: made once, kept while they are in use, within the limit."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from robostream.storage import (
    Cache,
    MappedFile,
    open_cached_file,
    open_mapped_file,
)
from tests.forked import in_child
from tests.storage.memory_remote import BLOCK, Remote

SIZE = 100_000


def content_of(name: str) -> bytes:
    return Remote(SIZE, ord(name)).content


def maker(name: str) -> Callable[[], tuple[int, Callable[[BinaryIO], None]]]:
    return lambda: (SIZE, lambda file: file.write(content_of(name)) and None)


def keep(cache: Cache, name: str) -> MappedFile:
    file = open_mapped_file(cache, name, "1", maker(name))
    assert file is not None
    assert file.path.read_bytes() == content_of(name)
    return file


def names(folder: Path) -> set[str]:
    return {path.name for path in (folder / "files").iterdir()}


def never() -> tuple[int, Callable[[BinaryIO], None]]:
    raise AssertionError("should be there")


def test_one_of_many_makes_the_file(tmp_path: Path) -> None:
    """The others wait and get the same file; another version is another file."""
    begin, made = threading.Barrier(6), []

    def make() -> tuple[int, Callable[[BinaryIO], None]]:
        made.append(1)
        time.sleep(0.05)
        return maker("a")()

    def ask(_: int) -> Path:
        cache = Cache(tmp_path, 10**7, BLOCK)
        begin.wait()
        file = open_mapped_file(cache, "a", "1", make)
        assert file is not None
        return file.path

    with ThreadPoolExecutor(6) as pool:
        paths = set(pool.map(ask, range(6)))

    assert (len(paths), made) == (1, [1])
    assert open_mapped_file(Cache(tmp_path, 10**7), "a", "2", maker("b")) is not None
    assert len(names(tmp_path)) == 2


def test_files_in_use_stay_and_the_oldest_other_goes(tmp_path: Path) -> None:
    """Unused files are evicted; if all are in use, nothing is added."""
    cache = Cache(tmp_path, 3 * SIZE + 20_000, BLOCK)
    in_use = keep(cache, "a")
    for seconds, name in enumerate("bc"):
        path = keep(cache, name).path
        os.utime(path, (seconds, seconds))
    oldest = open_mapped_file(cache, "b", "1", never)
    assert oldest is not None
    os.utime(oldest.path, (0, 0))
    place = oldest.path.name
    del oldest
    others = [keep(cache, "d"), open_mapped_file(cache, "c", "1", never)]

    assert in_use.path.name in names(tmp_path)
    assert place not in names(tmp_path)
    assert open_mapped_file(cache, "e", "1", maker("e")) is None
    assert cache.info().used_bytes <= 3 * SIZE + 20_000
    assert all(file is not None for file in others)


def test_blocks_and_whole_files_share_the_limit(tmp_path: Path) -> None:
    """Unmapped files are evicted for blocks, and blocks for files."""
    limit, remote = 3 * SIZE, Remote(2 * SIZE)
    cache = Cache(tmp_path, limit, BLOCK)
    for name in "abcdef":
        keep(cache, name)
        remote.check(open_cached_file(cache, name, "1", 2 * SIZE), 0, 2 * SIZE)
        used = sum(path.stat().st_blocks * 512 for path in tmp_path.glob("[bf]*/*"))
        assert used <= limit

    assert cache.info().used_bytes <= limit


def test_clear_leaves_what_is_in_use(tmp_path: Path) -> None:
    """Evicting a mapped file would not free its space."""
    cache = Cache(tmp_path, 10**7, BLOCK)
    in_use = keep(cache, "a")
    keep(cache, "b")

    assert cache.clear() == SIZE
    assert names(tmp_path) == {in_use.path.name}
    assert cache.info().used_bytes == SIZE


def test_a_failed_make_leaves_nothing(tmp_path: Path) -> None:
    """An error of `make` is raised; an error of the disk turns the cache off."""
    cache = Cache(tmp_path, 10**7, BLOCK)

    def fail() -> tuple[int, Callable[[BinaryIO], None]]:
        raise KeyError("no such column")

    def refuse(file: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(KeyError):
        open_mapped_file(cache, "a", "1", fail)
    assert open_mapped_file(cache, "a", "1", lambda: (SIZE, refuse)) is None
    assert names(tmp_path) == set()


def test_what_a_killed_maker_left_goes(tmp_path: Path) -> None:
    """The unfinished file of a killed process is counted, then deleted, never served."""
    heard, said = os.pipe()

    def wait(file: BinaryIO) -> None:
        file.write(b"half")
        os.write(said, b"half way")
        signal.pause()

    child = in_child(
        lambda: open_mapped_file(Cache(tmp_path, 10**7, BLOCK), "a", "1", lambda: (SIZE, wait))
    )
    os.close(said)
    assert os.read(heard, 100) == b"half way"
    os.close(heard)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = names(tmp_path)
    cache = Cache(tmp_path, 10**7, BLOCK)
    keep(cache, "a")
    assert left in names(tmp_path)
    cache.clear()

    assert left not in names(tmp_path)
