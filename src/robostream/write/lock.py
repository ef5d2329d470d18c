# SPDX-License-Identifier: Apache-2.0
"""One writer per dataset: a lock that the system releases even if the writer is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from robostream.errors import WriteError

_NAME = "lock"


class WriterLock:
    """The right to write into a dataset, held until `release`."""

    def __init__(self, staging: Path) -> None:
        self._staging = staging
        self._process = os.getpid()
        self._handle = _acquire(staging)

    @property
    def is_mine(self) -> bool:
        """Whether this process took the lock; a forked child only has a copy of it."""
        return os.getpid() == self._process

    def release(self) -> None:
        """Give the lock back, and remove the staging folder if nothing else is in it."""
        if self._handle < 0:
            return
        if self.is_mine:
            # The lock file is deleted while the lock is held. Another process may have opened it to
            # lock it next; that process notices that the file is deleted and starts again.
            (self._staging / _NAME).unlink(missing_ok=True)
            if not any(self._staging.iterdir()):
                self._staging.rmdir()
        self._close()

    def drop(self) -> None:
        """Give the lock back as far as possible; raises nothing, because no caller handles it."""
        with contextlib.suppress(OSError):
            self.release()
        self._close()

    def _close(self) -> None:
        if self._handle >= 0:
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
            holder = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise WriteError(_held_text(staging.parent, holder)) from error
        if _is_current(handle, staging / _NAME):
            os.ftruncate(handle, 0)
            os.write(handle, _this_process().encode())
            return handle
        os.close(handle)


def _this_process() -> str:
    return f"process {os.getpid()} on {os.uname().nodename}"


def _held_text(root: Path, holder: str) -> str:
    if holder == _this_process():
        return (
            f"{root}: this process ({holder}) has a writer open on this dataset already. Call its "
            "finalize(), or delete the last reference to it, then try again. After an error, its "
            "traceback may hold such a reference; a new process can always resume."
        )
    return (
        f"{root}: another writer ({holder or 'unknown process'}) is recording into this dataset. "
        "Wait until it has called finalize(), or stop it, then try again."
    )


def _is_current(handle: int, path: Path) -> bool:
    try:
        named = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_ino, held.st_dev) == (named.st_ino, named.st_dev)
