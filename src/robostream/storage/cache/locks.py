# SPDX-License-Identifier: Apache-2.0
"""Locks between processes. The kernel holds them, so that a killed process leaves none behind.

Each lock has an open file of its own. So threads exclude each other as processes do, and a lock
that is given back is free even if a forked child still has a copy of the open file.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FIRST_WAIT_S = 0.001
_LONGEST_WAIT_S = 0.05


@contextmanager
def alone(path: Path) -> Iterator[int]:
    """Hold a file's lock, which is waited for; gives a descriptor of the file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
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
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
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

    A claim saves work and guards nothing: whoever waited `patience_s` in vain, or finds no file or
    no such locks, goes on without one. So claims cannot block each other for good, and a process
    that stands still stops nobody.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        yield
        return
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


def _try_range(fd: int, kind: int, first: int, stop: int) -> bool:
    """Lock or unlock bytes of an open file (not of the process, as fcntl.lockf would)."""
    request = struct.pack("hhqqi0q", kind, os.SEEK_SET, first, stop - first, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True
