# SPDX-License-Identifier: Apache-2.0
"""A remote file in memory that records its requests; and the disk usage of a cache."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

from robostream.storage import CachedFile

BLOCK = 4096
_LOOKS = 50


class Remote:
    """Random bytes with a fetch that is recorded."""

    def __init__(self, size: int, seed: int = 0) -> None:
        self.content = random.Random(seed).randbytes(size)
        self.fetched: list[tuple[int, int]] = []

    def fetch(self, start: int, stop: int) -> bytes:
        """Return bytes, and record the request."""
        self.fetched.append((start, stop))
        return self.content[start:stop]

    def check(self, file: CachedFile, start: int, stop: int) -> None:
        """Read through a cache and compare."""
        assert file.read(start, stop, self.fetch) == self.content[start:stop]


def no_fetch(start: int, stop: int) -> bytes:
    """Fail: everything should be in the cache."""
    raise AssertionError(f"bytes {start} to {stop} should be in the cache")


def block_paths(folder: Path) -> list[Path]:
    return sorted(folder.glob("blocks/*"))


def disk_bytes(folder: Path) -> int:
    """Return the disk space of a cache's block files at one moment.

    If they change all the time, it is the least that was seen: a sum of several moments is too high
    where something moved from one file to another.
    """
    seen = [_file_bytes(folder)]
    for _ in range(_LOOKS):
        seen.append(_file_bytes(folder))
        if seen[-1] == seen[-2]:
            return sum(seen[-1].values())
    return min(sum(sizes.values()) for sizes in seen)


def _file_bytes(folder: Path) -> dict[Path, int]:
    found = {}
    for path in block_paths(folder):
        with contextlib.suppress(FileNotFoundError):  # deleted between the two lines
            found[path] = path.stat().st_blocks * 512
    return found
