# SPDX-License-Identifier: Apache-2.0
"""Giving a part of a file back to the disk, where the filesystem can."""

from __future__ import annotations

import ctypes
import errno
import os
from functools import lru_cache
from typing import Any

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


def punch_hole(fd: int, start: int, nbytes: int) -> bool:
    """Make a range of a file take no space and read as zeros; False where that cannot be done."""
    fallocate = _fallocate()
    if fallocate is None:
        return False
    if fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, start, nbytes) == 0:
        return True
    code = ctypes.get_errno()
    if code in _CANNOT:
        return False
    raise OSError(code, os.strerror(code))


@lru_cache(maxsize=1)
def _fallocate() -> Any:
    """Return the C library's function, the one with 64-bit offsets; Python has no name for it."""
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("fallocate64", "fallocate"):
        function = getattr(library, name, None)
        if function is not None:
            function.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]
            return function
    return None
