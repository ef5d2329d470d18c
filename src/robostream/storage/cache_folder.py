# SPDX-License-Identifier: Apache-2.0
"""Private files, atomic writes and locks; the cache folder, and the liveness of its processes.

Anyone who can write to a cache folder could plant a symbolic link and make this user overwrite a
file elsewhere, so files are never opened through links. Datasets may be private: new folders are
for their owner only, and new files are readable to whoever may read their folder.

robostream-cache.json   the marker: format, version, bytes per block
lock                    locked to write, count or delete; holds the number of bytes in use
blocks/                 one block file per remote file and version (block_file.py)
files/                  files that processes map, such as decoded rows (cache.py)
leases/                 one locked file per process that announced what it will read

The kernel releases the locks of a killed process. Each lock has its own open file, so threads
exclude each other as processes do, and a released lock is free even if a forked child still has a
copy of the open file.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
import struct
import time
import uuid
import weakref
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import lru_cache
from pathlib import Path

from robostream import config
from robostream.errors import CacheError

MARKER = "robostream-cache.json"
_FORMAT = "robostream cache"
_VERSION = 1
_MAX_MARKER_LENGTH = 4096
_FIRST_WAIT_S = 0.001
_MAX_WAIT_S = 0.05
_PROCESS_NAME = re.compile("[0-9a-f]{8}")
_READ_BITS = 0o044


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, for their owner only."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in (*reversed(missing), path):
        folder.mkdir(mode=0o700, exist_ok=True)


def make_subfolder(path: Path) -> None:
    """Create a folder that is readable to whoever may read its parent."""
    if path.is_symlink():
        raise _unsafe(path, "a link")
    if path.is_dir():
        return
    path.mkdir(mode=0o700, exist_ok=True)
    shared = path.parent.stat().st_mode & _READ_BITS
    path.chmod(stat.S_IMODE(path.stat().st_mode) | shared | shared >> 2)


def open_private(path: Path, flags: int, *, may_share: bool = True) -> int:
    """Return a descriptor of a regular file; raise OSError for a link or anything else.

    A file that this call creates is readable to whoever may read its folder, or to its owner only
    if `may_share` is False.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # O_NONBLOCK: a FIFO must not block
    while True:
        try:
            if not flags & os.O_EXCL:
                return _check_regular(os.open(path, flags & ~os.O_CREAT), path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
        except OSError as error:
            raise _unsafe(path, "a link") if error.errno == errno.ELOOP else error from None
        try:
            fd = os.open(path, flags | os.O_EXCL, 0o600)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            continue  # another process has just created it
        shared = path.parent.stat().st_mode & _READ_BITS if may_share else 0
        os.fchmod(fd, 0o600 | shared)
        return fd


def open_writable_or_readable(path: Path, flags: int) -> tuple[int, bool]:
    """Return a descriptor of a file and whether it is writable; another user's may not be."""
    try:
        return open_private(path, os.O_RDWR | flags), True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return open_private(path, os.O_RDONLY), False


def write_bytes_atomic(
    path: Path,
    content: bytes,
    *,
    is_private: bool = False,
    is_durable: bool = True,
    replaces: bool = True,
) -> None:
    """Write a temporary file, sync it, rename it to `path`, and sync the folder.

    A private file has the mode of `open_private`; otherwise the process's umask applies. A file
    that is not durable is not synced: a power cut may leave it empty or incomplete. Unless it
    `replaces` an existing file, the first of several processes wins.
    """
    if is_private:
        make_private_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    opener = (lambda name, flags: open_private(Path(name), flags)) if is_private else None
    try:
        with open(temporary, "xb", opener=opener) as file:
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        if replaces:
            os.replace(temporary, path)
        else:
            with suppress(FileExistsError):
                os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    if is_durable:
        sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Block until a file's content, or a folder's names, are on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _check_regular(fd: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _unsafe(path, "not a regular file")


def _unsafe(path: Path, found: str) -> OSError:
    wanted = f"want a file or folder that robostream made, found {found}; delete it"
    return OSError(errno.ELOOP, wanted, str(path))


class CacheFolder:
    """The paths of a cache: its lock, block files, mapped files and liveness locks."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.path = path
        self.block_bytes = block_bytes
        self.lock = path / "lock"
        self.blocks = path / "blocks"
        self.files = path / "files"
        self.processes = path / "leases"

    def is_writable(self) -> bool:
        """Return whether this user may write to the cache."""
        paths = (self.path, self.blocks, self.files, self.processes)
        lock = (self.lock,) if os.path.exists(self.lock) else ()
        return all(os.access(path, os.W_OK) for path in (*paths, *lock))


def open_cache_folder(path: Path, block_bytes: int) -> CacheFolder:
    """Return a cache folder, created if it is missing; an existing one keeps its block size."""
    # A cache deletes files, so a folder with other content is refused.
    make_private_folder(path)
    if not (path / MARKER).exists():
        # Another process may be writing the marker of the same cache right now.
        others = sorted(name for name in os.listdir(path) if not name.startswith(f".{MARKER}."))
        if others and not (path / MARKER).exists():
            raise CacheError(
                f"{path}: want a new or empty folder for the cache, or one that robostream made; "
                f"found {', '.join(others[:3])}{' and more' if len(others) > 3 else ''}. A cache "
                "deletes files to keep to its limit, so give it a folder of its own."
            )
        marker = {"format": _FORMAT, "version": _VERSION, "block_bytes": block_bytes}
        # If another process is first, its block size holds.
        content = json.dumps(marker).encode()
        write_bytes_atomic(path / MARKER, content, is_private=True, replaces=False)
    folder = CacheFolder(path, _read_marker(path))
    for part in (folder.blocks, folder.files, folder.processes):
        make_subfolder(part)
    return folder


def is_block_size(block_bytes: int) -> bool:
    """Return whether a number is a valid block size."""
    return 0 < block_bytes < 1 << 32 and block_bytes % 4096 == 0


def is_cache(path: Path) -> bool:
    """Return whether a folder is a cache."""
    return (path / MARKER).is_file()


def _read_marker(path: Path) -> int:
    """Return the block size of a cache; raise CacheError if its marker is invalid."""
    with open(open_private(path / MARKER, os.O_RDONLY), errors="replace") as file:
        text = file.read(_MAX_MARKER_LENGTH)
    try:
        marker = json.loads(text)
        is_ours = (marker["format"], marker["version"]) == (_FORMAT, _VERSION)
        block_bytes = int(marker["block_bytes"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        is_ours, block_bytes = False, 0
    if not is_ours or not is_block_size(block_bytes):
        raise CacheError(
            f"{path / MARKER}: want the marker of a {_FORMAT} of version {_VERSION}, found "
            f"{text[:80]!r}. Another version of robostream made this folder; choose another, or "
            "delete it."
        )
    return block_bytes


def locked(path: Path) -> AbstractContextManager[int]:
    """Wait for the lock of a file and hold it; yields a descriptor of the file."""
    return lock_descriptor(open_writable_or_readable(path, os.O_CREAT)[0])


@contextmanager
def lock_descriptor(fd: int) -> Iterator[int]:
    """Wait for the lock of an open file and hold it; then close the file."""
    with open(fd, "rb", buffering=0):  # closes it
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            yield fd
        finally:
            # Closing is not enough: a process forked meanwhile keeps the file open, and locked.
            fcntl.flock(fd, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock of a file."""
    with open(open_private(path, os.O_RDONLY), "rb", buffering=0) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(file, fcntl.LOCK_UN)
        return False


@contextmanager
def claimed(path: Path, first: int, stop: int) -> Iterator[None]:
    """Claim the numbers [first, stop) of a file, so that one of several workers does the work.

    A claim saves work and protects nothing: after `config.CACHE_CLAIM_TIMEOUT_S`, or without lock
    support, the caller continues without it, so claims cannot deadlock. If the file is missing or
    read-only, the claim holds among the threads of this process.
    """
    try:
        fd = open_private(path, os.O_RDWR)
    except OSError:
        fd = os.open(f"/proc/self/fd/{_process_file()}", os.O_RDWR | os.O_CLOEXEC)
        base = zlib.crc32(os.fsencode(path)) << 30
        first, stop = base + first, base + stop
    with open(fd, "r+b", buffering=0):  # closes it
        deadline, wait_s = time.monotonic() + config.CACHE_CLAIM_TIMEOUT_S, _FIRST_WAIT_S
        while not _try_range(fd, fcntl.F_WRLCK, first, stop) and time.monotonic() < deadline:
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, _MAX_WAIT_S)
        try:
            yield
        finally:
            _try_range(fd, fcntl.F_UNLCK, first, stop)


@lru_cache(maxsize=1)
def _process_file() -> int:
    return os.memfd_create("claims", os.MFD_CLOEXEC)


def _try_range(fd: int, kind: int, first: int, stop: int) -> bool:
    """Lock or unlock bytes of an open file (not of the process, as fcntl.lockf would)."""
    request = struct.pack("hhqqi0q", kind, os.SEEK_SET, first, stop - first, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def take_number(folder: CacheFolder, owner: object) -> int:
    """Return a number that belongs to this process until `owner` or the process is gone."""
    # The times of next use that a process sets carry its number, and a locked file has the number
    # as its name. Eviction asks the kernel which files are locked, so the hints of a process expire
    # with it, however it ends.
    # The folder lock prevents others from taking the file for a dead process's.
    with locked(folder.lock):
        number = 0
        while number == 0 or (folder.processes / f"{number:08x}").exists():
            number = secrets.randbits(32)
        path = folder.processes / f"{number:08x}"
        fd = open_private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        weakref.finalize(owner, os.close, fd)
        fcntl.flock(fd, fcntl.LOCK_EX)
        return number


def live_processes(folder: CacheFolder) -> list[int]:
    """Return the numbers of live processes; delete other files. The caller holds the lock."""
    live = []
    for path in folder.processes.iterdir():
        if _PROCESS_NAME.fullmatch(path.name) is None:
            continue  # not ours
        if is_locked(path):
            live.append(int(path.name, 16))
        else:
            path.unlink()
    return live
