# SPDX-License-Identifier: Apache-2.0
"""The folder of a cache: made or recognised by its mark, refused if it is anything else.

robostream-cache.json   the mark: format, version, bytes of a block
lock                    whoever writes, counts or deletes holds it; inside, the bytes in use
blocks/                 one file for each remote file and version (layout.py)
files/                  whole files that processes map, such as decoded rows (whole_file.py)
leases/                 one locked file for each process that said what it will read (lease.py)
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import struct
import time
import weakref
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from robostream.errors import CacheError
from robostream.storage.block_layout import is_block_size
from robostream.storage.safe_files import (
    make_private_folder,
    make_subfolder,
    open_at_least_to_read,
    open_private,
    write_private_once,
)

MARK = "robostream-cache.json"
_FORMAT = "robostream cache"
_VERSION = 1
_MOST_MARK_CHARACTERS = 4096


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the parts of a cache lie."""

    path: Path
    block_bytes: int

    @property
    def lock(self) -> Path:
        """The file whose lock one holds to write."""
        return self.path / "lock"

    @property
    def blocks(self) -> Path:
        """The folder of blocks."""
        return self.path / "blocks"

    @property
    def files(self) -> Path:
        """The folder of whole files."""
        return self.path / "files"

    @property
    def leases(self) -> Path:
        """The folder of leases."""
        return self.path / "leases"

    def is_writable(self) -> bool:
        """Return whether this user may write to it: not to a read-only mount, say."""
        places = (self.path, self.blocks, self.files, self.leases)
        lock = (self.lock,) if os.path.exists(self.lock) else ()
        return all(os.access(place, os.W_OK) for place in (*places, *lock))


def open_folder(path: Path, block_bytes: int) -> Folder:
    """Return a cache's folder, made now if there is none; the size of blocks is the folder's own.

    Raises CacheError for a folder that has something else in it: a cache deletes files, so it does
    not move in with others.
    """
    make_private_folder(path)
    if not (path / MARK).exists():
        _refuse_strangers(path)
        _write_mark(path, block_bytes)
    folder = Folder(path, _read_mark(path))
    for part in (folder.blocks, folder.files, folder.leases):
        make_subfolder(part)
    return folder


def is_cache(path: Path) -> bool:
    """Return whether a folder is a cache's."""
    return (path / MARK).is_file()


def _refuse_strangers(path: Path) -> None:
    # Another process may be making the same cache: its mark, still being written, is no stranger.
    strangers = sorted(name for name in os.listdir(path) if not name.startswith(f".{MARK}."))
    if strangers and not (path / MARK).exists():
        raise CacheError(
            f"{path}: want a new or empty folder for the cache, or one that robostream made; found "
            f"{', '.join(strangers[:3])}{' and more' if len(strangers) > 3 else ''}. A cache "
            "deletes files to keep to its limit, so give it a folder of its own."
        )


def _write_mark(path: Path, block_bytes: int) -> None:
    """Write the mark so that it is there whole, also after a power cut, before anything else."""
    content = {"format": _FORMAT, "version": _VERSION, "block_bytes": block_bytes}
    # If another process is first, its size of blocks holds.
    write_private_once(path / MARK, json.dumps(content).encode())


def _read_mark(path: Path) -> int:
    with open(open_private(path / MARK, os.O_RDONLY), errors="replace") as file:
        text = file.read(_MOST_MARK_CHARACTERS)
    try:
        mark = json.loads(text)
        is_ours = (mark["format"], mark["version"]) == (_FORMAT, _VERSION)
        block_bytes = int(mark["block_bytes"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        is_ours, block_bytes = False, 0
    if not is_ours or not is_block_size(block_bytes):
        raise CacheError(
            f"{path / MARK}: want the mark of a {_FORMAT} of version {_VERSION}, found "
            f"{text[:80]!r}. Another version of robostream made this folder; choose another, or "
            "delete it."
        )
    return block_bytes


_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Hold a file's lock, which is waited for; gives a descriptor of the file."""
    fd, _ = open_at_least_to_read(path, os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            yield fd
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def is_held(path: Path) -> bool:
    """Return whether some process has the lock of a file."""
    fd = open_private(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False
    finally:
        os.close(fd)


@contextmanager
def claimed(path: Path, first: int, stop: int, *, patience_s: float) -> Iterator[None]:
    """Hold the numbers [first, stop) of a file, so that of those who want the same one works.

    A claim saves work and guards nothing: whoever waited `patience_s` in vain, or finds no such
    locks, goes on without one. So claims cannot block each other for good, and a process that
    stands still stops nobody. Where the file is missing, or may only be read, a claim holds among
    the threads of this process.
    """
    try:
        fd = open_private(path, os.O_RDWR)
    except OSError:
        if not hasattr(os, "memfd_create"):
            yield
            return
        fd = os.open(f"/proc/self/fd/{_own_file()}", os.O_RDWR | os.O_CLOEXEC)
        base = zlib.crc32(os.fsencode(path)) << 30
        first, stop = base + first, base + stop
    try:
        deadline, wait_s = time.monotonic() + patience_s, _FIRST_WAIT_S
        while not _try_range(fd, fcntl.F_WRLCK, first, stop) and time.monotonic() < deadline:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        try:
            yield
        finally:
            _try_range(fd, fcntl.F_UNLCK, first, stop)
    finally:
        os.close(fd)


@lru_cache(maxsize=1)
def _own_file() -> int:
    return os.memfd_create("claims", os.MFD_CLOEXEC)


def _try_range(fd: int, kind: int, first: int, stop: int) -> bool:
    """Lock or unlock bytes of an open file (not of the process, as fcntl.lockf would)."""
    request = struct.pack("hhqqi0q", kind, os.SEEK_SET, first, stop - first, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


_NAME = re.compile("[0-9a-f]{8}")


class LivenessLock:
    """A number that is this process's until the object, or the process, is gone."""

    def __init__(self, folder: Folder) -> None:
        # Under the folder's lock nobody takes the file for a dead one's before it is locked.
        with alone(folder.lock):
            self.number = 0
            while self.number == 0 or (folder.leases / _name(self.number)).exists():
                self.number = secrets.randbits(32)
            path = folder.leases / _name(self.number)
            fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            weakref.finalize(self, os.close, fd)
            fcntl.flock(fd, fcntl.LOCK_EX)


def living_leases(folder: Folder) -> list[int]:
    """Return the numbers of the living; the files of the others go. For who holds the lock."""
    living = []
    for path in folder.leases.iterdir():
        if _NAME.fullmatch(path.name) is None:
            continue  # not ours
        if is_held(path):
            living.append(int(path.name, 16))
        else:
            path.unlink()
    return living


def _name(number: int) -> str:
    return f"{number:08x}"
