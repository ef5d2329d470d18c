# SPDX-License-Identifier: Apache-2.0
"""Private folders and files, and atomic writes.

Anyone who can write to a cache folder could plant a symbolic link and make this user overwrite a
file elsewhere, so files are never opened through links. Datasets may be private: new folders are
for their owner only, and new files are readable to whoever may read their folder.
"""

from __future__ import annotations

import errno
import os
import stat
import uuid
from contextlib import suppress
from pathlib import Path

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
