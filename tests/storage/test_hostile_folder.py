# SPDX-License-Identifier: Apache-2.0
"""A cache folder that others may read or write: links, modes, and sizes that files claim."""

from __future__ import annotations

import http.server
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from robostream import config
from robostream.cli.main import main
from robostream.errors import CacheError
from robostream.storage import (
    Cache,
    CacheSettings,
    FileOpener,
    as_location,
    open_cached_file,
    open_mapped_file,
)
from robostream.storage.block_file import BlockLayout, make_file_header
from tests.storage.memory_remote import BLOCK, Remote, block_paths

SIZE = 20 * BLOCK
SECRET = b"somebody's file, of more than sixteen bytes"
NESTED = '{"format": ' + "[" * 3000 + "]" * 3000 + "}"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def fill(folder: Path) -> Remote:
    remote = Remote(SIZE)
    remote.check(open_cached_file(Cache(folder, 10**6, BLOCK), "a", "1", SIZE), 0, SIZE)
    return remote


def test_a_link_in_place_of_the_lock_is_not_written_through(
    tmp_path: Path, victim: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The link's target stays unchanged; the cache is not written, with a warning."""
    folder = tmp_path / "cache"
    Cache(folder, 10**6, BLOCK)
    (folder / "lock").symlink_to(victim)
    fill(folder)

    assert victim.read_bytes() == SECRET
    assert "found a link" in caplog.text


@pytest.mark.parametrize("place", ["blocks", "files"])
def test_a_link_in_place_of_a_file_or_folder_leads_nowhere(
    tmp_path: Path, victim: Path, place: str
) -> None:
    """Nothing is written through a link in place of a block file, liveness lock or folder."""
    folder = tmp_path / "cache"
    fill(folder)
    (path,) = block_paths(folder)
    path.unlink()
    if place == "blocks":
        path.symlink_to(victim)
    else:
        (folder / "files").rmdir()
        (folder / "files").symlink_to(tmp_path)
    cache = Cache(folder, 10**6, BLOCK)
    open_mapped_file(cache, "a", "1", lambda: (4096, lambda file: file.write(b"x") and None))
    Remote(SIZE).check(open_cached_file(cache, "a", "1", SIZE), 0, SIZE)

    assert victim.read_bytes() == SECRET
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "victim"]


@pytest.mark.parametrize("kind", ["link", "fifo"])
def test_a_marker_that_is_no_plain_file_is_not_read(
    tmp_path: Path, victim: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A link's target is not shown in a message, and a FIFO does not block."""
    mark = tmp_path / "cache/robostream-cache.json"
    mark.parent.mkdir()
    if kind == "link":
        mark.symlink_to(victim)
    else:
        os.mkfifo(mark)
    fill(tmp_path / "cache")

    assert "want a file or folder that robostream made" in caplog.text
    assert "somebody" not in caplog.text


@pytest.mark.usefixtures("usual_umask")
def test_a_new_cache_is_for_its_owner_only(tmp_path: Path) -> None:
    """New folders are 0700, also those above it, and files 0600."""
    folder = tmp_path / "new/cache"
    fill(folder)

    assert modes(tmp_path / "new") == ({0o700}, {0o600})


@pytest.mark.usefixtures("usual_umask")
@pytest.mark.parametrize("mode", [0o755, 0o750, 0o711])
def test_a_folder_that_others_may_read_makes_a_shared_cache(tmp_path: Path, mode: int) -> None:
    """Files take the group and other read bits of an existing folder."""
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(mode)
    fill(folder)
    readable = 0o700 | (mode & 0o044) | (mode & 0o044) >> 2

    assert modes(folder) == ({mode, readable}, {0o600 | mode & 0o044})


def modes(folder: Path) -> tuple[set[int], set[int]]:
    """The modes of all folders and of all files."""
    paths = [folder, *folder.rglob("*")]
    folders = {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_dir()}
    return folders, {stat.S_IMODE(path.stat().st_mode) for path in paths if path.is_file()}


@pytest.mark.parametrize(
    "mark",
    [
        NESTED,
        "[" * 4000,
        '{"format": "robostream cache", "version": 1, "block_bytes": Infinity}',
        '{"format": "robostream cache", "version": 1, "block_bytes": 4' + "0" * 40 + "}",
    ],
)
def test_a_hostile_marker_is_rejected(tmp_path: Path, mark: str) -> None:
    """Nested JSON or an invalid block size is no marker."""
    (tmp_path / "robostream-cache.json").write_text(mark)

    with pytest.raises(CacheError, match="of version 1, found"):
        Cache(tmp_path, 10**6)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_block_file_that_claims_too_much_takes_no_memory(
    tmp_path: Path, is_sparse: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """`cache info` needs no more memory, and `cache clear` deletes the file."""
    fill(tmp_path / "cache")
    layout = BlockLayout(1 << 46, config.CACHE_BLOCK_BYTES)
    path = tmp_path / "cache/blocks" / ("0" * 64)
    path.write_bytes(make_file_header(layout, "huge"))
    if is_sparse:
        os.truncate(path, layout.data_at)
    command = [sys.executable, "-m", "robostream", "cache", "info", "--json"]
    subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache")],
        check=True,
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert main(["cache", "clear", "--cache-dir", str(tmp_path / "cache")]) == 0

    assert "freed" in capsys.readouterr().out
    assert block_paths(tmp_path / "cache") == []


def test_a_size_that_no_file_has_is_refused(tmp_path: Path) -> None:
    """A file that claims 10^18 bytes is not cached, and takes no memory."""
    cache = Cache(tmp_path, 10**6)

    assert not cache.may_hold(10**18)
    with pytest.raises(CacheError, match="too many for the cache"):
        open_cached_file(cache, "a", "1", 10**18)


HUGE = 1 << 39  # more than the cache may map, and less than a remote file may have


class Boaster(http.server.BaseHTTPRequestHandler):
    """Says that its file is of 512 GiB, of which it has the first bytes."""

    def do_GET(self) -> None:
        """Answer with all bytes there are."""
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(SECRET) - 1}/{HUGE}")
        self._end(len(SECRET))
        self.wfile.write(SECRET)

    def do_HEAD(self) -> None:
        """Claim to have more."""
        self.send_response(200)
        self._end(HUGE)

    def _end(self, nbytes: int) -> None:
        self.send_header("Content-Length", str(nbytes))
        self.send_header("ETag", '"1"')
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_a_file_that_is_said_to_be_huge_is_read_without_the_cache(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes come from the server, as far as they exist."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Boaster) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        opener = FileOpener(as_location(url, None, CacheSettings(tmp_path / "cache", 10**6)))
        assert opener.open("file").size() == HUGE
        assert opener.open("file").read(0, len(SECRET)) == SECRET
        server.shutdown()

    assert "does not hold files" in caplog.text
    assert block_paths(tmp_path / "cache") == []
