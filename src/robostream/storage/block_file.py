# SPDX-License-Identifier: Apache-2.0
"""A block file: a file header, four columns with an entry per block, the blocks.

The columns are in the file itself, so that block headers and blocks cannot be separated. Nothing is
ever synced to disk on purpose. While the machine runs, all processes see writes in their order,
killed or not. After a power cut anything may be missing, and is noticed: a block header has a check
of itself and a checksum of its block.

Reading needs no lock. To write or drop blocks, the caller holds the folder lock.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import struct
import weakref
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.storage.cache_folder import is_block_size, open_private, open_writable_or_readable

MAGIC = b"RSBLOCKS"
# `serial` is random for each fill, so that a block that was evicted and fetched again differs from
# one that stayed. All zeros mean no block; any other invalid header is the rest of an interrupted
# fill or eviction.
BLOCK_HEADER = np.dtype([("checksum", "<u4"), ("check", "<u4"), ("serial", "<u8")])
# The columns one after the other: their types, and the bytes per block in the columns before.
# Times of next use are on the clock of the process with the number `owner`; times of last use are
# seconds since 1970.
_COLUMNS: dict[str, tuple[np.dtype[Any], int]] = {
    "header": (BLOCK_HEADER, 0),
    "next_use": (np.dtype("<f8"), 16),
    "owner": (np.dtype("<u4"), 24),
    "last_use": (np.dtype("<u4"), 28),
}
_BYTES_PER_BLOCK = 32
# Magic, version, bytes per block, bytes of the remote file, length of the name.
_FILE_HEADER = struct.Struct("<8sIIQI")
_FILE_HEADER_BYTES = 4096
_VERSION = 1
_MAX_NAME_BYTES = 3000
# Headers of blocks that take no space, and of those that may take space but must not be read.
_EMPTY, DIRTY = (np.array((0, 0, serial), BLOCK_HEADER) for serial in (0, 1))
_MIX = [np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Ranges = list[tuple[int, int]]
BlockHeaders = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The offsets in the block file of a remote file of `size_bytes`."""

    size_bytes: int
    block_bytes: int

    @property
    def num_blocks(self) -> int:
        """The number of blocks; the last may be shorter."""
        return -(-self.size_bytes // self.block_bytes)

    @property
    def data_at(self) -> int:
        """The offset of the blocks; everything before them counts as in use."""
        return -(-(_FILE_HEADER_BYTES + _BYTES_PER_BLOCK * self.num_blocks) // 4096) * 4096

    @property
    def file_bytes(self) -> int:
        """The length of the block file, which is sparse."""
        return self.data_at + self.num_blocks * self.block_bytes

    def blocks_touching(self, start: int, stop: int) -> range:
        """Return the blocks that hold bytes of [start, stop)."""
        return range(start // self.block_bytes, -(-stop // self.block_bytes))

    def blocks_within(self, start: int, stop: int) -> range:
        """Return the blocks that lie completely in [start, stop)."""
        end = self.num_blocks if stop == self.size_bytes else stop // self.block_bytes
        return range(-(-start // self.block_bytes), end)

    def bytes_of(self, blocks: range) -> tuple[int, int]:
        """Return the bytes [start, stop) of the remote file in consecutive blocks."""
        stop = min(blocks.stop * self.block_bytes, self.size_bytes)
        return blocks.start * self.block_bytes, stop


def runs(flags: Flags, first: int = 0) -> list[range]:
    """Return the runs of True, numbered from `first`. Pure."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))) + first
    return [range(begin, end) for begin, end in edges.reshape(-1, 2).tolist()]


def are_valid(headers: BlockHeaders, first: int) -> Flags:
    """Return which headers, of blocks from `first` on, belong to a block that may be read. Pure."""
    valid: Flags = (headers["serial"] > 1) & (headers["check"] == _checks(headers, first))
    return valid


def _checks(headers: BlockHeaders, first: int) -> npt.NDArray[np.uint32]:
    blocks = np.arange(first, first + len(headers), dtype=np.uint64)
    checksums = headers["checksum"].astype(np.uint64)
    mixed = headers["serial"] * _MIX[0] + checksums * _MIX[1] + (blocks + 1) * _MIX[2]
    checks: npt.NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return checks


class BlockFile:
    """An open block file that closes itself with its last reader."""

    def __init__(self, fd: int, layout: BlockLayout, shown_name: str, *, is_writable: bool) -> None:
        self.layout = layout
        self.shown_name = shown_name
        self.is_writable = is_writable
        self._fd = fd
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
        occupied: Flags = np.any(self.column("header").view("<u8").reshape(-1, 2), axis=1)
        return occupied

    def column(self, name: str, blocks: range | None = None) -> npt.NDArray[Any]:
        """Return `header`, `next_use`, `owner` or `last_use` of consecutive blocks, or of all."""
        blocks = range(self.layout.num_blocks) if blocks is None else blocks
        return np.frombuffer(self.raw_column(name, blocks), _COLUMNS[name][0])

    def raw_column(self, name: str, blocks: range) -> bytes:
        """Return entries of consecutive blocks as bytes, zeros where the file is truncated."""
        kind, at = self._place(name, blocks)
        nbytes = kind.itemsize * len(blocks)
        return self._pread(at, nbytes).ljust(nbytes, b"\0")

    def set_columns(self, blocks: range, **values: npt.ArrayLike) -> None:
        """Write entries of consecutive blocks, by the name of their column."""
        for name, value in values.items():
            kind, at = self._place(name, blocks)
            self._pwrite(np.full(len(blocks), value, kind).tobytes(), at)

    def missing(self, blocks: range) -> list[range]:
        """Return the runs of those of consecutive blocks that may not be read."""
        return runs(~are_valid(self.column("header", blocks), blocks.start), blocks.start)

    def read(self, start: int, stop: int) -> bytes:
        """Return bytes of the remote file; fewer, or zeros, where blocks are missing."""
        return self._pread(self.layout.data_at + start, stop - start)

    def write_blocks(self, blocks: range, content: memoryview) -> None:
        """Write consecutive blocks, then their headers."""
        # The headers are dirty until then, so that a killed process leaves no uncounted space.
        start, stop = self.layout.bytes_of(blocks)
        size = self.layout.block_bytes
        headers = np.zeros(len(blocks), BLOCK_HEADER)
        headers["checksum"] = [
            zlib.crc32(content[at : at + size]) for at in range(0, stop - start, size)
        ]
        headers["serial"] = secrets.randbits(62) + 2
        headers["check"] = _checks(headers, blocks.start)
        self.set_columns(blocks, header=DIRTY)
        self._pwrite(content, self.layout.data_at + start)
        self.set_columns(blocks, header=headers)

    def drop_blocks(self, dropped: Iterable[range]) -> None:
        """Free the space of blocks; of all blocks if the filesystem cannot punch holes."""
        for blocks in dropped:
            self.set_columns(blocks, header=DIRTY)
            at = self.layout.data_at + blocks.start * self.layout.block_bytes
            if not punch_hole(self._fd, at, len(blocks) * self.layout.block_bytes):
                self.drop_all()
                return
            self.set_columns(blocks, header=_EMPTY)

    def drop_all(self) -> None:
        """Free the space of all blocks."""
        occupied = runs(self.occupied())
        for blocks in occupied:
            self.set_columns(blocks, header=DIRTY)
        os.ftruncate(self._fd, self.layout.data_at)
        os.ftruncate(self._fd, self.layout.file_bytes)
        for blocks in occupied:
            self.set_columns(blocks, header=_EMPTY)

    def clean(self, *, after_restart: bool) -> None:
        """Drop the remains of interrupted fills and evictions."""
        # A power cut may have lost headers and kept their blocks, so after a restart of the machine
        # every block without a valid header is dropped.
        invalid = ~are_valid(self.column("header"), 0)
        self.drop_blocks(runs(invalid if after_restart else invalid & self.occupied()))

    def _place(self, name: str, blocks: range) -> tuple[np.dtype[Any], int]:
        """Return the type of a column, and the offset of the first of some blocks in it."""
        kind, before = _COLUMNS[name]
        at = _FILE_HEADER_BYTES + before * self.layout.num_blocks + kind.itemsize * blocks.start
        return kind, at

    def _pread(self, at: int, nbytes: int) -> bytes:
        """Return bytes of the block file; fewer at its end, and where the disk fails."""
        parts: list[bytes] = []
        try:
            while nbytes and (part := os.pread(self._fd, nbytes, at)):
                parts.append(part)
                at, nbytes = at + len(part), nbytes - len(part)
        except OSError:
            pass  # an unreadable block counts as missing
        return b"".join(parts)

    def _pwrite(self, content: bytes | memoryview, at: int) -> None:
        rest = memoryview(content)
        if not self.is_writable:
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
        header = parse_file_header(os.pread(fd, _FILE_HEADER_BYTES, 0))
    except OSError:
        header = None
    if header is None or os.fstat(fd).st_size < header[0].data_at:
        os.close(fd)
        return None
    return BlockFile(fd, *header, is_writable=is_writable)


def create_block_file(path: Path, layout: BlockLayout, shown_name: str) -> None:
    """Create an empty block file, replacing one without a valid header."""
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    with open(fd, "r+b", buffering=0):  # closes it
        os.ftruncate(fd, 0)
        os.ftruncate(fd, layout.file_bytes)
        # The header comes last: without one, the file takes no space.
        os.pwrite(fd, make_file_header(layout, shown_name), 0)


def make_file_header(layout: BlockLayout, shown_name: str) -> bytes:
    """Return the header of a block file."""
    name = shown_name.encode(errors="replace")[:_MAX_NAME_BYTES]
    sizes = layout.block_bytes, layout.size_bytes
    header = _FILE_HEADER.pack(MAGIC, _VERSION, *sizes, len(name)) + name
    header = header.ljust(_FILE_HEADER_BYTES - 4, b"\0")
    return header + zlib.crc32(header).to_bytes(4, "little")


def parse_file_header(header: bytes) -> tuple[BlockLayout, str] | None:
    """Return the layout and the shown name of a block file; None if the header is invalid."""
    checksum = int.from_bytes(header[-4:], "little")
    if len(header) != _FILE_HEADER_BYTES or zlib.crc32(header[:-4]) != checksum:
        return None
    magic, version, block_bytes, size_bytes, length = _FILE_HEADER.unpack_from(header)
    if (magic, version) != (MAGIC, _VERSION) or not is_block_size(block_bytes):
        return None
    layout = BlockLayout(size_bytes, block_bytes)
    if layout.num_blocks > config.MOST_CACHED_BLOCKS:
        return None
    name = header[_FILE_HEADER.size : _FILE_HEADER.size + length]
    return layout, name.decode(errors="replace")


def punch_hole(fd: int, start: int, nbytes: int) -> bool:
    """Free a range of a file, which then reads as zeros; False if that is not supported."""
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    mode = _KEEP_SIZE | _PUNCH_HOLE
    if fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(nbytes)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code))
