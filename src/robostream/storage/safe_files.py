# SPDX-License-Identifier: Apache-2.0
"""Files of robostream's caches: never opened through a link, private unless their folder is shared.

Whoever can write to a cache folder could put a link where a file is expected, and have this user
overwrite a file elsewhere. And datasets may be private, so a new folder is for its owner only; in a
folder that others may read, they may read new files too.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_READ_BITS = 0o044


def make_private_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, for their owner only."""
    missing = [folder for folder in path.parents if not folder.exists()]
    for folder in (*reversed(missing), path):
        folder.mkdir(mode=0o700, exist_ok=True)


def make_subfolder(path: Path) -> None:
    """Make a folder that those who may read the one above it may read too."""
    if path.is_symlink():
        raise _refusal(path, "a link")
    if path.is_dir():
        return
    path.mkdir(mode=0o700, exist_ok=True)
    shared = path.parent.stat().st_mode & _READ_BITS
    path.chmod(stat.S_IMODE(path.stat().st_mode) | shared | shared >> 2)


def open_private(path: Path, flags: int, *, may_share: bool = True) -> int:
    """Return a descriptor of a regular file; raise OSError if a link or anything else is there.

    Args:
        path: The file.
        flags: As for os.open. A file that is made now is readable to whoever may read its folder.
        may_share: False to make it readable to its owner only.
    """
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # which keeps a FIFO from blocking
    while True:
        try:
            if not flags & os.O_EXCL:
                return _regular(os.open(path, flags & ~os.O_CREAT), path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
        except OSError as error:
            raise _refusal(path, "a link") if error.errno == errno.ELOOP else error from None
        try:
            fd = os.open(path, flags | os.O_EXCL, 0o600)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            continue  # another process made it just now
        shared = path.parent.stat().st_mode & _READ_BITS if may_share else 0
        os.fchmod(fd, 0o600 | shared)
        return fd


def open_at_least_to_read(path: Path, flags: int) -> tuple[int, bool]:
    """Return a descriptor of a file, and whether it may be written: not another user's, say."""
    try:
        return open_private(path, os.O_RDWR | flags), True
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        return open_private(path, os.O_RDONLY), False


def _regular(fd: int, path: Path) -> int:
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise _refusal(path, "not a regular file")


def _refusal(path: Path, found: str) -> OSError:
    wanted = f"want a file or folder that robostream made, found {found}; delete it"
    return OSError(errno.ELOOP, wanted, str(path))


def write_bytes_atomic(path: Path, content: bytes, *, is_private: bool = False) -> None:
    """Write aside, sync to disk, rename over `path`, sync the folder; leaves no part behind.

    A private file has the mode of `open_private`; otherwise the process's umask decides.
    """
    with _written_aside(path, content, is_private) as aside:
        os.replace(aside, path)
    sync_to_disk(path.parent)


def write_private_once(path: Path, content: bytes) -> None:
    """Write a private file unless it exists: of several processes that do, the first wins."""
    with _written_aside(path, content, True) as aside, suppress(FileExistsError):
        os.link(aside, path)
    sync_to_disk(path.parent)


def sync_to_disk(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _written_aside(path: Path, content: bytes, is_private: bool) -> Iterator[Path]:
    """Yield a file beside `path` whose content is on disk; it is gone after the block."""
    if is_private:
        make_private_folder(path.parent)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with open(aside, "xb", opener=_open_private if is_private else None) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _open_private(path: str, flags: int) -> int:
    return open_private(Path(path), flags)
