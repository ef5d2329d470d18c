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
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from robostream.storage.files.private import open_at_least_to_read, open_private

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
