# SPDX-License-Identifier: Apache-2.0
"""One open block file: its block headers, its blocks, and their times of use.

Reading needs no lock. To write or drop blocks, the caller holds the folder lock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import weakref
import zlib
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.storage.block_layout import (
    BLOCK_HEADER,
    FILE_HEADER_BYTES,
    BlockHeaders,
    BlockLayout,
    Flags,
    are_empty,
    are_valid,
    dirty_headers,
    make_file_header,
    make_headers,
    parse_file_header,
    runs,
)
from robostream.storage.safe_files import open_private, open_writable_or_readable

_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class BlockFile:
    """A block file that closes itself with its last reader."""

    def __init__(self, fd: int, layout: BlockLayout, shown_name: str, *, is_writable: bool) -> None:
        self.layout = layout
        self.shown_name = shown_name
        self._fd = fd
        self._is_writable = is_writable
        weakref.finalize(self, os.close, fd)

    @property
    def is_deleted(self) -> bool:
        """Whether the file was unlinked: what is written to it is lost."""
        return os.fstat(self._fd).st_nlink == 0

    @property
    def nbytes(self) -> int:
        """The space in use: all headers, and every block that is not empty."""
        return self.layout.data_at + int(self.occupied().sum()) * self.layout.block_bytes

    def occupied(self) -> Flags:
        """Return which blocks take space, valid or not."""
        return ~are_empty(self.headers(range(self.layout.num_blocks)))

    def headers(self, blocks: range) -> BlockHeaders:
        """Return the headers of consecutive blocks, zeros where the file is truncated."""
        return np.frombuffer(self.raw_headers(blocks), BLOCK_HEADER)

    def raw_headers(self, blocks: range) -> bytes:
        """Return the headers of consecutive blocks as bytes, 16 each."""
        return self._pread_padded(FILE_HEADER_BYTES + 16 * blocks.start, 16 * len(blocks))

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the remote file; fewer, or zeros, where blocks are missing."""
        return self._pread(self.layout.data_at + start, stop - start)

    def checksum(self, block: int) -> int:
        """Return the checksum of a block's current bytes."""
        return zlib.crc32(self.read(*self.layout.bytes_of(range(block, block + 1))))

    def write_blocks(self, blocks: range, content: memoryview) -> None:
        """Write consecutive blocks, then their headers.

        Until then the headers are dirty, so that a killed process leaves no uncounted space.
        """
        start, stop = self.layout.bytes_of(blocks)
        if len(content) != stop - start:
            raise ValueError(f"want {stop - start} bytes for {blocks}, got {len(content)}")
        size = self.layout.block_bytes
        checksums = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
        self._write_headers(blocks, dirty_headers(len(blocks)))
        self._pwrite(content, self.layout.data_at + start)
        serial = secrets.randbits(62) + 2
        self._write_headers(blocks, make_headers(blocks.start, checksums, serial))

    def invalidate(self, block: int, serial: int) -> None:
        """Mark a damaged block as dirty, unless it has been filled again."""
        one = range(block, block + 1)
        if int(self.headers(one)["serial"][0]) == serial:
            self._write_headers(one, dirty_headers(1))

    def drop_blocks(self, dropped: Iterable[range]) -> None:
        """Free the space of blocks; of all blocks if the filesystem cannot punch holes."""
        for blocks in dropped:
            self._write_headers(blocks, dirty_headers(len(blocks)))
            at = self.layout.data_at + blocks.start * self.layout.block_bytes
            if not punch_hole(self._fd, at, len(blocks) * self.layout.block_bytes):
                self.drop_all()
                return
            self._write_headers(blocks, np.zeros(len(blocks), BLOCK_HEADER))

    def drop_all(self) -> None:
        """Free the space of all blocks."""
        occupied = runs(self.occupied())
        for blocks in occupied:
            self._write_headers(blocks, dirty_headers(len(blocks)))
        os.ftruncate(self._fd, self.layout.data_at)
        os.ftruncate(self._fd, self.layout.file_bytes)
        for blocks in occupied:
            self._write_headers(blocks, np.zeros(len(blocks), BLOCK_HEADER))

    def clean(self, *, after_restart: bool) -> None:
        """Drop the remains of interrupted fills and evictions.

        A power cut may have lost headers and kept their blocks, so after a restart of the machine
        every block without a valid header is dropped.
        """
        headers = self.headers(range(self.layout.num_blocks))
        invalid = ~are_valid(headers, 0)
        self.drop_blocks(runs(invalid if after_restart else invalid & ~are_empty(headers)))

    def set_next_use(self, blocks: range, next_use: float, owner: int) -> None:
        """Set the time of next use of consecutive blocks, and the process that will use them."""
        next_uses = np.full(len(blocks), next_use, "<f8").tobytes()
        self._pwrite(next_uses, self.layout.next_uses_at + 8 * blocks.start)
        owners = np.full(len(blocks), owner, "<u4").tobytes()
        self._pwrite(owners, self.layout.owners_at + 4 * blocks.start)

    def set_last_use(self, blocks: range, now_s: int) -> None:
        """Set the time of last use of consecutive blocks, if the file is writable."""
        if self._is_writable:
            last_uses = np.full(len(blocks), now_s, "<u4").tobytes()
            self._pwrite(last_uses, self.layout.last_uses_at + 4 * blocks.start)

    def next_uses(self) -> npt.NDArray[np.float64]:
        """Return the time of next use of each block."""
        return self._column(self.layout.next_uses_at, "<f8")

    def owners(self) -> npt.NDArray[np.uint32]:
        """Return the number of the process that set each block's next use."""
        return self._column(self.layout.owners_at, "<u4")

    def last_uses(self) -> npt.NDArray[np.uint32]:
        """Return the time of last use of each block."""
        return self._column(self.layout.last_uses_at, "<u4")

    def _column(self, at: int, kind: str) -> npt.NDArray[Any]:
        nbytes = np.dtype(kind).itemsize * self.layout.num_blocks
        return np.frombuffer(self._pread_padded(at, nbytes), kind)

    def _write_headers(self, blocks: range, headers: BlockHeaders) -> None:
        self._pwrite(headers.tobytes(), FILE_HEADER_BYTES + 16 * blocks.start)

    def _pread_padded(self, at: int, nbytes: int) -> bytes:
        return self._pread(at, nbytes).ljust(nbytes, b"\0")

    def _pread(self, at: int, nbytes: int) -> bytes:
        """Return bytes of the block file; fewer at its end, and where the disk fails."""
        parts: list[bytes] = []
        try:
            while nbytes and (part := os.pread(self._fd, nbytes, at)):
                parts.append(part)
                at, nbytes = at + len(part), nbytes - len(part)
        except OSError:
            pass  # an unreadable block counts as missing
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pwrite(self, content: bytes | memoryview, at: int) -> None:
        rest = memoryview(content)
        if not self._is_writable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.shown_name)
        while rest:
            written = os.pwrite(self._fd, rest, at)
            rest, at = rest[written:], at + written


def open_block_file(path: Path) -> BlockFile | None:
    """Return an open block file; None if it is missing or its header is invalid."""
    try:
        fd, is_writable = open_writable_or_readable(path, 0)
    except OSError:
        return None
    try:
        header = parse_file_header(os.pread(fd, FILE_HEADER_BYTES, 0))
    except OSError:
        header = None
    if header is None or os.fstat(fd).st_size < header[0].data_at:
        os.close(fd)
        return None
    return BlockFile(fd, *header, is_writable=is_writable)


def create_block_file(path: Path, layout: BlockLayout, shown_name: str) -> None:
    """Create an empty block file, replacing one without a valid header."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, 0)
        os.ftruncate(fd, layout.file_bytes)
        # The header comes last: without one, the file takes no space.
        os.pwrite(fd, make_file_header(layout, shown_name), 0)
    finally:
        os.close(fd)


def punch_hole(fd: int, start: int, nbytes: int) -> bool:
    """Free a range of a file, which then reads as zeros; False if that is not supported."""
    fallocate = _fallocate()
    if fallocate is None:
        return False
    if fallocate(fd, _KEEP_SIZE | _PUNCH_HOLE, start, nbytes) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code))


@lru_cache(maxsize=1)
def _fallocate() -> Any:
    """Return the C library's fallocate with 64-bit offsets, which Python does not wrap."""
    arguments = ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *arguments, use_errno=True)
    for name in ("fallocate64", "fallocate"):
        with suppress(AttributeError):
            return prototype((name, ctypes.CDLL(None)))
    return None
