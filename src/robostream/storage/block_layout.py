# SPDX-License-Identifier: Apache-2.0
"""The format of a block file: a file header, block headers and times of use, the blocks. Pure.

The block headers are in the file itself, so that headers and blocks cannot be separated. Nothing
is ever synced to disk on purpose. While the machine runs, all processes see writes in their order,
killed or not. After a power cut anything may be missing, and is noticed: a block header has a check
of itself and a checksum of its block.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream import config

MAGIC = b"RSBLOCKS"
FILE_HEADER_BYTES = 4096
# `serial` is random for each fill, so that a block that was evicted and fetched again differs from
# one that stayed. All zeros mean no block; any other invalid header is the rest of an interrupted
# fill or eviction.
BLOCK_HEADER = np.dtype([("checksum", "<u4"), ("check", "<u4"), ("serial", "<u8")])
# Magic, version, bytes per block, bytes of the remote file, length of the name.
_FILE_HEADER = struct.Struct("<8sIIQI")
_VERSION = 1
_MAX_NAME_BYTES = 3000
_MIX = [np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]

Ranges = list[tuple[int, int]]
BlockHeaders = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The offsets in the block file of a remote file of `size_bytes`.

    Each block has a header, a time of next use (f8), the number of the process that set it (u4) and
    a time of last use (u4, seconds since 1970), in four consecutive arrays.
    """

    size_bytes: int
    block_bytes: int

    @property
    def num_blocks(self) -> int:
        """The number of blocks; the last may be shorter."""
        return -(-self.size_bytes // self.block_bytes)

    @property
    def next_uses_at(self) -> int:
        """The offset of the times of next use."""
        return FILE_HEADER_BYTES + 16 * self.num_blocks

    @property
    def owners_at(self) -> int:
        """The offset of the process numbers."""
        return FILE_HEADER_BYTES + 24 * self.num_blocks

    @property
    def last_uses_at(self) -> int:
        """The offset of the times of last use."""
        return FILE_HEADER_BYTES + 28 * self.num_blocks

    @property
    def data_at(self) -> int:
        """The offset of the blocks; everything before them counts as in use."""
        return -(-(FILE_HEADER_BYTES + 32 * self.num_blocks) // 4096) * 4096

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
    """Return the runs of True, numbered from `first`."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))) + first
    return [range(begin, end) for begin, end in edges.reshape(-1, 2).tolist()]


def make_headers(first: int, checksums: list[int], serial: int) -> BlockHeaders:
    """Return the headers of consecutive blocks."""
    headers = np.zeros(len(checksums), BLOCK_HEADER)
    headers["checksum"], headers["serial"] = checksums, serial
    headers["check"] = _checks(headers, first)
    return headers


def dirty_headers(count: int) -> BlockHeaders:
    """Return headers of blocks that may take space but must not be read."""
    headers = np.zeros(count, BLOCK_HEADER)
    headers["serial"] = 1
    return headers


def are_valid(headers: BlockHeaders, first: int) -> Flags:
    """Return which headers, of blocks from `first` on, belong to a block that may be read."""
    valid: Flags = (headers["serial"] > 1) & (headers["check"] == _checks(headers, first))
    return valid


def are_empty(headers: BlockHeaders) -> Flags:
    """Return which headers belong to blocks that take no space."""
    empty: Flags = headers.view("<u8").reshape(-1, 2).max(axis=1, initial=0) == 0
    return empty


def _checks(headers: BlockHeaders, first: int) -> npt.NDArray[np.uint32]:
    blocks = np.arange(first, first + len(headers), dtype=np.uint64)
    checksums = headers["checksum"].astype(np.uint64)
    mixed = headers["serial"] * _MIX[0] + checksums * _MIX[1] + (blocks + 1) * _MIX[2]
    checks: npt.NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return checks


def make_file_header(layout: BlockLayout, shown_name: str) -> bytes:
    """Return the header of a block file."""
    name = shown_name.encode(errors="replace")[:_MAX_NAME_BYTES]
    sizes = layout.block_bytes, layout.size_bytes
    header = _FILE_HEADER.pack(MAGIC, _VERSION, *sizes, len(name)) + name
    header = header.ljust(FILE_HEADER_BYTES - 4, b"\0")
    return header + zlib.crc32(header).to_bytes(4, "little")


def parse_file_header(header: bytes) -> tuple[BlockLayout, str] | None:
    """Return the layout and the shown name of a block file; None if the header is invalid."""
    checksum = int.from_bytes(header[-4:], "little")
    if len(header) != FILE_HEADER_BYTES or zlib.crc32(header[:-4]) != checksum:
        return None
    magic, version, block_bytes, size_bytes, length = _FILE_HEADER.unpack_from(header)
    if (magic, version) != (MAGIC, _VERSION) or not is_block_size(block_bytes):
        return None
    layout = BlockLayout(size_bytes, block_bytes)
    if layout.num_blocks > config.MOST_CACHED_BLOCKS:
        return None
    name = header[_FILE_HEADER.size : _FILE_HEADER.size + length]
    return layout, name.decode(errors="replace")


def is_block_size(block_bytes: int) -> bool:
    """Return whether a number is a valid block size."""
    return 0 < block_bytes < 1 << 32 and block_bytes % 4096 == 0
