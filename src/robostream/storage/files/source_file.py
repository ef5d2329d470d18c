# SPDX-License-Identifier: Apache-2.0
"""A byte source as a file object, for libraries that want to seek and read."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from robostream.storage.files.coalesce import ByteRange, coalesce
from robostream.storage.files.store import ByteSource

# Where a request takes its time, up to so many bytes that nobody wants cost less than another one.
_MAX_GAP_BYTES = 64 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024


class SourceFile(io.RawIOBase):
    """A read-only file over a byte source."""

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self._source = source
        self._size = source.size()
        self._at = 0
        self._held: list[tuple[int, bytes]] = []

    @contextmanager
    def held(self, ranges: Iterable[ByteRange]) -> Iterator[None]:
        """Read ranges now, near ones at once, and take from them what is asked for in the block."""
        reads = coalesce(ranges, max_gap_bytes=_MAX_GAP_BYTES, max_read_bytes=_MAX_READ_BYTES)
        self._held = [(read.start, self._source.read(read.start, read.stop)) for read in reads]
        try:
            yield
        finally:
            self._held = []

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
        content = self._find(self._at, stop)
        self._at = stop
        return content

    def _find(self, start: int, stop: int) -> bytes:
        for begin, content in self._held:
            if begin <= start and stop <= begin + len(content):
                return content[start - begin : stop - begin]
        return self._source.read(start, stop)
