# SPDX-License-Identifier: Apache-2.0
"""What a process said it will read counts as long as it lives.

A process that gives hints of next use has a number, and a file named after it whose lock it holds.
Hints carry the number. Eviction asks the kernel which locks are held, so the hints of a process
that ended, in whichever way, are void at once.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import weakref

from robostream.storage.cache.folder import Folder
from robostream.storage.cache.locks import alone, is_held
from robostream.storage.files.private import open_private

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
