# SPDX-License-Identifier: Apache-2.0
"""A byte source as a file object, for libraries that want to seek and read."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager

from robostream.storage.files.store import ByteSource


class SourceFile(io.RawIOBase):
    """A read-only file over a byte source."""

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self._source = source
        self._size = source.size()
        self._at = 0
        self._held: tuple[int, bytes] = 0, b""

    @contextmanager
    def held(self, start: int, stop: int) -> Iterator[None]:
        """Read bytes at once, and during the block take from them what is asked for."""
        self._held = start, self._source.read(start, stop)
        try:
            yield
        finally:
            self._held = 0, b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position, which may lie beyond the end."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end of the file."""
        stop = self._size if size < 0 else min(self._size, self._at + size)
        if stop <= self._at:
            return b""
        begin, held = self._held
        if begin <= self._at and stop <= begin + len(held):
            content = held[self._at - begin : stop - begin]
        else:
            content = self._source.read(self._at, stop)
        self._at = stop
        return content
