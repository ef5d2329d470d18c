# SPDX-License-Identifier: Apache-2.0
"""Giving a part of a file back to the disk, where the filesystem can."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import weakref
import zlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream.storage.block_layout import (
    HEAD_BYTES,
    MARK,
    Flags,
    Layout,
    Marks,
    are_empty,
    are_good,
    make_head,
    make_marks,
    parse_head,
    runs,
    unclean_marks,
)
from robostream.storage.safe_files import open_at_least_to_read, open_private

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


class BlockFile:
    """A block file that closes itself once the last reader lets go of it."""

    def __init__(self, fd: int, layout: Layout, shown_name: str, *, is_writable: bool) -> None:
        self.fd = fd
        self.is_writable = is_writable
        self.layout = layout
        self.shown_name = shown_name
        weakref.finalize(self, os.close, fd)

    @property
    def is_deleted(self) -> bool:
        """Whether the file has no name any more: what is written to it is lost."""
        return os.fstat(self.fd).st_nlink == 0

    @property
    def nbytes(self) -> int:
        """The space it takes: its head, and every block that is not empty."""
        return self.layout.data_at + int(self.held().sum()) * self.layout.block_bytes

    def held(self) -> Flags:
        """Return which blocks take space, marked or not."""
        return ~are_empty(self.marks(range(self.layout.num_blocks)))

    def marks(self, blocks: range) -> Marks:
        """Return the marks of consecutive blocks, zeros where the file was cut short."""
        return np.frombuffer(self.raw_marks(blocks), MARK)

    def raw_marks(self, blocks: range) -> bytes:
        """Return the marks as they are in the file, 16 bytes each."""
        nbytes = 16 * len(blocks)
        return self._pread(HEAD_BYTES + 16 * blocks.start, nbytes).ljust(nbytes, b"\0")

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the remote file; fewer, or zeros, where they are not all there."""
        return self._pread(self.layout.data_at + start, stop - start)

    def checksum(self, block: int) -> int:
        """Return the checksum of a block's bytes as they are now."""
        return zlib.crc32(self.read(*self.layout.bytes_of(range(block, block + 1))))

    def store(self, blocks: range, content: memoryview) -> None:
        """Write consecutive blocks and mark them, the marks last.

        Until then they are marked unclean, so that a killed process leaves no space unaccounted.
        """
        start, stop = self.layout.bytes_of(blocks)
        if len(content) != stop - start:
            raise ValueError(f"want {stop - start} bytes for {blocks}, got {len(content)}")
        size = self.layout.block_bytes
        checksums = [zlib.crc32(content[at : at + size]) for at in range(0, len(content), size)]
        self._write_marks(blocks, unclean_marks(len(blocks)))
        self._pwrite(content, self.layout.data_at + start)
        serial = secrets.randbits(62) + 2
        self._write_marks(blocks, make_marks(blocks.start, checksums, serial))

    def discard(self, block: int, serial: int) -> None:
        """Withdraw the mark of a damaged block, unless it was filled anew meanwhile."""
        one = range(block, block + 1)
        if int(self.marks(one)["serial"][0]) == serial:
            self._write_marks(one, unclean_marks(1))

    def drop(self, dropped: Iterable[range]) -> None:
        """Give the space of blocks back; all of the file's where it cannot be done in part."""
        for blocks in dropped:
            self._write_marks(blocks, unclean_marks(len(blocks)))
            at = self.layout.data_at + blocks.start * self.layout.block_bytes
            if not punch_hole(self.fd, at, len(blocks) * self.layout.block_bytes):
                self.drop_all()
                return
            self._write_marks(blocks, np.zeros(len(blocks), MARK))

    def drop_all(self) -> None:
        """Give the space of all blocks back."""
        held = runs(self.held())
        for blocks in held:
            self._write_marks(blocks, unclean_marks(len(blocks)))
        os.ftruncate(self.fd, self.layout.data_at)
        os.ftruncate(self.fd, self.layout.file_bytes)
        for blocks in held:
            self._write_marks(blocks, np.zeros(len(blocks), MARK))

    def clean(self, *, after_restart: bool) -> None:
        """Drop what fills and evictions that were cut short left behind.

        A power cut may have taken marks and left their blocks, so after a restart of the machine
        all that is not marked is dropped.
        """
        marks = self.marks(range(self.layout.num_blocks))
        rest = ~are_good(marks, 0)
        self.drop(runs(rest if after_restart else rest & ~are_empty(marks)))

    def set_due(self, blocks: range, when: float, owner: int) -> None:
        """Note when consecutive blocks will be used next, and by whom."""
        whens = np.full(len(blocks), when, "<f8").tobytes()
        self._pwrite(whens, self.layout.dues_at + 8 * blocks.start)
        owners = np.full(len(blocks), owner, "<u4").tobytes()
        self._pwrite(owners, self.layout.owners_at + 4 * blocks.start)

    def set_used(self, blocks: range, now_s: int) -> None:
        """Note when consecutive blocks were used last."""
        if not self.is_writable:
            return
        uses = np.full(len(blocks), now_s, "<u4").tobytes()
        self._pwrite(uses, self.layout.uses_at + 4 * blocks.start)

    def dues(self) -> npt.NDArray[np.float64]:
        """Return the time of next use of each block."""
        return self._column(self.layout.dues_at, "<f8")

    def owners(self) -> npt.NDArray[np.uint32]:
        """Return the lease of the process that set it."""
        return self._column(self.layout.owners_at, "<u4")

    def uses(self) -> npt.NDArray[np.uint32]:
        """Return the time of last use of each block."""
        return self._column(self.layout.uses_at, "<u4")

    def _column(self, at: int, kind: str) -> npt.NDArray[Any]:
        nbytes = np.dtype(kind).itemsize * self.layout.num_blocks
        return np.frombuffer(self._pread(at, nbytes).ljust(nbytes, b"\0"), kind)

    def _write_marks(self, blocks: range, marks: Marks) -> None:
        self._pwrite(marks.tobytes(), HEAD_BYTES + 16 * blocks.start)

    def _pread(self, at: int, nbytes: int) -> bytes:
        """Return bytes of the block file; fewer at its end, and where the disk refuses."""
        parts: list[bytes] = []
        try:
            while nbytes and (part := os.pread(self.fd, nbytes, at)):
                parts.append(part)
                at, nbytes = at + len(part), nbytes - len(part)
        except OSError:
            pass  # a block that cannot be read is one that is not there
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _pwrite(self, content: bytes | memoryview, at: int) -> None:
        rest = memoryview(content)
        if not self.is_writable:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), self.shown_name)
        while rest:
            written = os.pwrite(self.fd, rest, at)
            rest, at = rest[written:], at + written


def open_block_file(path: Path) -> BlockFile | None:
    """Return an open block file, None if there is none or it is not whole."""
    try:
        fd, is_writable = open_at_least_to_read(path, 0)
    except OSError:
        return None
    try:
        head = parse_head(os.pread(fd, HEAD_BYTES, 0))
    except OSError:
        head = None
    if head is None or os.fstat(fd).st_size < head[0].data_at:
        os.close(fd)
        return None
    return BlockFile(fd, *head, is_writable=is_writable)


def create_block_file(path: Path, layout: Layout, shown_name: str) -> None:
    """Make an empty block file, over one whose head a power cut took. For who holds the lock."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, make_head(layout, shown_name), 0)
        os.ftruncate(fd, layout.file_bytes)
    finally:
        os.close(fd)
