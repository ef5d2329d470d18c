# SPDX-License-Identifier: Apache-2.0
"""A cache that may only be read: another user's, or on a read-only mount."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from robostream import StreamingDataLoader, StreamingLeRobotDataset
from robostream.cli.main import main
from robostream.storage import Cache, open_cached_file, open_mapped_file
from robostream.testing import serve_files, start_proxy
from tests.forked import in_child
from tests.servers.required import lacking
from tests.storage.memory_remote import BLOCK, Remote, no_fetch

SIZE = 20 * BLOCK
ROWS = b"decoded rows"
NOBODY = 65534


def fill(folder: Path) -> Remote:
    cache, remote = Cache(folder, 10**6, BLOCK), Remote(SIZE)
    remote.check(open_cached_file(cache, "a", "1", SIZE), 0, SIZE)
    assert open_mapped_file(
        cache, "rows", "1", lambda: (100, lambda file: file.write(ROWS) and None)
    )
    return remote


def never() -> tuple[int, Callable[[BinaryIO], None]]:
    raise AssertionError("should be there")


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[Path]:
    """Yield another path to a folder, through which it may only be read."""
    mount = folder.with_name(f"{folder.name}-read-only")
    mount.mkdir()
    if subprocess.run(["mount", "--bind", folder, mount], capture_output=True).returncode:
        lacking("MOUNT", "no folder can be mounted read-only here, which needs root")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", mount], check=True)
        yield mount
    finally:
        subprocess.run(["umount", "--lazy", mount], check=True)


def test_a_cache_on_a_read_only_mount_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    """Blocks and rows are found silently; missing bytes are fetched, with a warning."""
    remote, other = fill(tmp_path / "cache"), Remote(SIZE, 1)
    with read_only(tmp_path / "cache") as folder:
        cache = Cache(folder, 10**6)
        file = open_cached_file(cache, "a", "1", SIZE)
        file.set_next_use(0, SIZE, 1)
        assert file.read(0, SIZE, no_fetch) == remote.content
        rows = open_mapped_file(cache, "rows", "1", never)
        assert rows is not None
        assert rows.path.read_bytes() == ROWS
        assert caplog.text == ""
        other.check(open_cached_file(cache, "b", "1", SIZE), 5, 10)
        assert main(["cache", "info", "--cache-dir", str(folder)]) == 0
        assert main(["cache", "clear", "--cache-dir", str(folder)]) == 1

    assert other.fetched == [(5, 10)]
    assert "may only be read" in caplog.text
    assert "may only read the cache" in capsys.readouterr().err


def test_a_cache_of_another_user_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Users who may read the folder need not fetch."""
    if os.getuid():
        lacking("ROOT", "only root can become another user")
    (tmp_path / "cache").mkdir(mode=0o755)
    (tmp_path / "cache").chmod(0o755)
    remote = fill(tmp_path / "cache")
    monkeypatch.chdir(tmp_path / "cache")  # which that user could not reach by its path

    def read_as_nobody() -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        cache = Cache(Path(), 10**6)
        assert open_cached_file(cache, "a", "1", SIZE).read(0, SIZE, no_fetch) == remote.content
        assert open_mapped_file(cache, "rows", "1", never) is not None
        assert cache.is_off
        assert cache.info().files

    assert os.waitpid(in_child(read_as_nobody), 0)[1] == 0


def num_frames(dataset: Path, url: str, folder: Path) -> int:
    """Consume an epoch and return how many frames it had."""
    stream = StreamingLeRobotDataset(
        "lab/cups", root=dataset, data_files_root=url, cache_dir=folder, rank=0, world_size=1
    )
    with contextlib.closing(StreamingDataLoader(stream, 8, num_workers=0)) as loader:
        return sum(len(batch["index"]) for batch in loader)


@pytest.mark.long
def test_an_epoch_from_a_cache_that_may_only_be_read_asks_no_server(
    small_dataset: Path, tmp_path: Path
) -> None:
    """A second loader over a full cache fetches no byte."""
    with serve_files(small_dataset) as server, start_proxy(server) as proxy:
        frames = num_frames(small_dataset, proxy.url, tmp_path / "cache")
        begun = len(proxy.journal())
        with read_only(tmp_path / "cache") as folder:
            assert num_frames(small_dataset, proxy.url, folder) == frames
        answers = [(e.method, e.sent_bytes) for e in proxy.journal(begun)]
    print(f"requests from a read-only cache: {answers}")

    assert sum(nbytes for _, nbytes in answers) == 0
