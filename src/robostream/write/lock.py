# SPDX-License-Identifier: Apache-2.0
"""One writer per dataset: a lock the system releases even when its holder is killed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from robostream.errors import WriteError

_NAME = "lock"


class WriterLock:
    """The right to write into a dataset, held until `release`."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging
        self._handle = _acquire(staging)

    def release(self) -> None:
        """Give the lock back; the staging folder goes with it if nothing is left in it."""
        if self._handle < 0:
            return
        # Unlinked while still held: whoever opened the same file sees that it is gone and retries.
        (self._staging / _NAME).unlink(missing_ok=True)
        if not any(self._staging.iterdir()):
            self._staging.rmdir()
        os.close(self._handle)
        self._handle = -1


def _acquire(staging: Path) -> int:
    while True:
        staging.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(staging / _NAME, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the last holder removed the folder between the two lines
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 64).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise WriteError(
                f"{staging.parent}: another writer (process {holder}) is recording into this "
                "dataset. Wait for its finalize(), or stop it, then try again."
            ) from error
        if _is_current(handle, staging / _NAME):
            os.ftruncate(handle, 0)
            os.write(handle, str(os.getpid()).encode())
            return handle
        os.close(handle)


def _is_current(handle: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev)
