# SPDX-License-Identifier: Apache-2.0
"""What a store offers: the sizes of its files, and byte ranges of each."""

from __future__ import annotations

import bisect
import io
import itertools
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from robostream.errors import DamagedFileError


class ByteSource(Protocol):
    """One file whose bytes are read by range. Thread-safe; pickles as its address.

    What goes wrong is a `StorageError` that begins with `name`.
    """

    @property
    def name(self) -> str:
        """The path or URL, for messages."""

    @property
    def identity(self) -> str:
        """What tells the file from all others, on any server; caches keep its bytes under it."""

    def size(self) -> int:
        """Return the number of bytes in the file."""

    def version(self) -> str:
        """Return a text that changes when the file does; empty where nothing tells."""

    def expect(self, size: int, version: str) -> None:
        """Take these for the file's size and version, as another process found them just now.

        A file that turns out to be another one is a ChangedFileError, here or at a later read.
        """

    def read(self, start: int, stop: int) -> bytes:
        """Return exactly the bytes [start, stop), or raise."""

    def bring(self, start: int, stop: int) -> None:
        """Have the bytes [start, stop) close by, where there is a place for it. Blocks."""


class Store(Protocol):
    """Files below one root, each known by its path relative to it, with slashes."""

    def open(self, file: str) -> ByteSource:
        """Return the bytes of a file. Reads nothing yet."""

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the size of every file below a folder; NoListingError where nobody can tell."""


def whole(content: bytes, start: int, stop: int, name: str) -> bytes:
    """Return what was read if it is as long as what was asked for, else raise."""
    if len(content) != stop - start:
        raise DamagedFileError(
            f"{name}: wanted bytes {start} to {stop}, got {len(content)} of {stop - start}. The "
            "file is truncated; download or copy it again."
        )
    return content


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Bytes [start, stop) of one file."""

    start: int
    stop: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.stop:
            raise ValueError(f"want 0 <= start < stop, got start={self.start}, stop={self.stop}")


def coalesce(
    ranges: Iterable[ByteRange], *, max_gap_bytes: int, max_read_bytes: int
) -> list[ByteRange]:
    """Return ascending reads that cover all `ranges`. Pure.

    Two neighbours become one read when at most `max_gap_bytes` lie between them and the read stays
    within `max_read_bytes`; a single range longer than that stays whole.
    """
    reads: list[ByteRange] = []
    for wanted in sorted(ranges, key=lambda r: (r.start, r.stop)):
        if reads:
            last = reads[-1]
            stop = max(last.stop, wanted.stop)
            near = wanted.start - last.stop <= max_gap_bytes
            if wanted.stop <= last.stop or (near and stop - last.start <= max_read_bytes):
                reads[-1] = ByteRange(last.start, stop)
                continue
        reads.append(wanted)
    return reads


def lean_gap(ranges: Iterable[ByteRange], most_waste: float) -> int:
    """Return the widest gap for `coalesce` that adds at most a share of the wanted bytes. Pure."""
    reads = coalesce(ranges, max_gap_bytes=0, max_read_bytes=1 << 62)
    gaps = sorted(after.start - before.stop for before, after in itertools.pairwise(reads))
    left = int(most_waste * sum(read.stop - read.start for read in reads))
    for gap in gaps:
        left -= gap
        if left < 0:
            return gap - 1
    return gaps[-1] if gaps else 0


# Where a request takes its time, up to so many bytes that nobody wants cost less than another one.
MAX_GAP_BYTES = 64 * 1024
_MAX_READ_BYTES = 64 * 1024 * 1024


class SourceFile(io.RawIOBase):
    """A read-only file over a byte source."""

    def __init__(self, source: ByteSource) -> None:
        self.name = source.name
        self._source = source
        self._size = source.size()
        self._at = 0
        self._held: dict[int, bytes] = {}
        self._held_at: list[int] = []

    @contextmanager
    def held(
        self, ranges: Iterable[ByteRange], *, max_gap_bytes: int = MAX_GAP_BYTES, requests: int = 1
    ) -> Iterator[None]:
        """Read ranges now, near ones at once, and take from them what is asked for in the block.

        Args:
            ranges: The ranges.
            max_gap_bytes: Ranges so far apart are read at once.
            requests: How many reads are under way at a time.
        """
        reads = coalesce(ranges, max_gap_bytes=max_gap_bytes, max_read_bytes=_MAX_READ_BYTES)
        with ThreadPoolExecutor(requests) as pool:
            read_all = map if requests == 1 else pool.map
            contents = read_all(lambda read: self._source.read(read.start, read.stop), reads)
            self._held = {read.start: part for read, part in zip(reads, contents, strict=True)}
        self._held_at = sorted(self._held)
        try:
            yield
        finally:
            self._held, self._held_at = {}, []

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
        before = bisect.bisect_right(self._held_at, start)
        if before:
            begin = self._held_at[before - 1]
            content = self._held[begin]
            if stop <= begin + len(content):
                return content[start - begin : stop - begin]
        return self._source.read(start, stop)
