# SPDX-License-Identifier: Apache-2.0
"""A file that is the same in the copy: its bytes are not written again where the disk can clone."""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path

# Linux: let a new file share the blocks of another until one of them is written to (Btrfs, XFS).
_FICLONE = 0x40049409


def place_same(source: Path, target: Path, *, link: bool) -> str:
    """Put a file at another path; return how: "cloned", "linked" or "copied".

    A hard link, made only if asked for, is one file under two names: an edit changes both.
    """
    source = source.resolve()  # a Hub snapshot is full of symbolic links
    target.parent.mkdir(parents=True, exist_ok=True)
    if _clone(source, target):
        return "cloned"
    if link:
        with suppress(OSError):  # another disk, or one without links
            os.link(source, target)
            return "linked"
    place_copy(source, target)
    return "copied"


def place_copy(source: Path, target: Path) -> None:
    """Copy a file's bytes and wait until they are on disk."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as given, open(target, "wb") as made:
        shutil.copyfileobj(given, made, 1 << 20)
        made.flush()
        os.fsync(made.fileno())


def _clone(source: Path, target: Path) -> bool:
    with open(source, "rb") as given, open(target, "wb") as made:
        try:
            fcntl.ioctl(made, _FICLONE, given.fileno())
        except OSError:
            os.unlink(target)
            return False
        os.fsync(made.fileno())
        return True
