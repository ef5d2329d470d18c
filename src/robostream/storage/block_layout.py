# SPDX-License-Identifier: Apache-2.0
"""Where things lie in a block file: a head, what is known of each block, the blocks.

The map of the blocks is in the file itself, before them, so that the two cannot be parted. Nothing
of a file is ever flushed to disk on purpose. While the machine runs, all processes see what was
written in the order it was written, killed or not. After a power cut anything may be missing, and
is noticed: a mark has a check of itself and a checksum of its block's bytes.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from robostream import config

MAGIC = b"RSBLOCKS"
HEAD_BYTES = 4096
# The mark of a block that is there. `serial` is drawn for each fill, so that a block that went and
# came back is told from one that stayed; all zeros is no block, anything else that fails its
# check is the rest of a fill or an eviction that was cut short.
MARK = np.dtype([("checksum", "<u4"), ("check", "<u4"), ("serial", "<u8")])
_HEAD = struct.Struct(
    "<8sIIQI"
)  # magic, version, bytes of a block, bytes of the file, name's length
_VERSION = 1
_LONGEST_NAME = 3000
_MIX = [np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)]

Ranges = list[tuple[int, int]]
Marks = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """The places in the block file of a remote file of `size_bytes`.

    For each block there are a mark, a time of next use (f8), the lease of whoever will use it (u4)
    and a time of last use (u4, in seconds since 1970), as four arrays one after the other.
    """

    size_bytes: int
    block_bytes: int

    @property
    def num_blocks(self) -> int:
        """Blocks of the file; the last may be shorter."""
        return -(-self.size_bytes // self.block_bytes)

    @property
    def dues_at(self) -> int:
        """Where the times of next use begin."""
        return HEAD_BYTES + 16 * self.num_blocks

    @property
    def owners_at(self) -> int:
        """Where the leases begin."""
        return HEAD_BYTES + 24 * self.num_blocks

    @property
    def uses_at(self) -> int:
        """Where the times of last use begin."""
        return HEAD_BYTES + 28 * self.num_blocks

    @property
    def data_at(self) -> int:
        """Where the blocks begin; all before counts as in use."""
        return -(-(HEAD_BYTES + 32 * self.num_blocks) // HEAD_BYTES) * HEAD_BYTES

    @property
    def file_bytes(self) -> int:
        """The length of the block file, which is sparse."""
        return self.data_at + self.num_blocks * self.block_bytes

    def touched(self, start: int, stop: int) -> range:
        """Return the blocks that hold bytes of [start, stop)."""
        return range(start // self.block_bytes, -(-stop // self.block_bytes))

    def covered(self, start: int, stop: int) -> range:
        """Return the blocks that lie in [start, stop) whole."""
        ends = self.num_blocks if stop == self.size_bytes else stop // self.block_bytes
        return range(-(-start // self.block_bytes), ends)

    def bytes_of(self, blocks: range) -> tuple[int, int]:
        """Return the bytes [start, stop) of the remote file that consecutive blocks hold."""
        stop = min(blocks.stop * self.block_bytes, self.size_bytes)
        return blocks.start * self.block_bytes, stop


def runs(flags: Flags, first: int = 0) -> list[range]:
    """Return the runs of True, numbered from `first`. Pure."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]]))) + first
    return [range(begin, end) for begin, end in edges.reshape(-1, 2).tolist()]


def make_marks(first: int, checksums: list[int], serial: int) -> Marks:
    """Return the marks of consecutive blocks. Pure."""
    marks = np.zeros(len(checksums), MARK)
    marks["checksum"], marks["serial"] = checksums, serial
    marks["check"] = _checks(marks, first)
    return marks


def unclean_marks(count: int) -> Marks:
    """Return marks that say: something may lie here, and nobody may use it. Pure."""
    marks = np.zeros(count, MARK)
    marks["serial"] = 1
    return marks


def are_good(marks: Marks, first: int) -> Flags:
    """Return which of the marks, of blocks from `first` on, say that a block is there. Pure."""
    good: Flags = (marks["serial"] > 1) & (marks["check"] == _checks(marks, first))
    return good


def are_empty(marks: Marks) -> Flags:
    """Return which of the marks say that nothing takes space. Pure."""
    empty: Flags = marks.view("<u8").reshape(-1, 2).max(axis=1, initial=0) == 0
    return empty


def _checks(marks: Marks, first: int) -> npt.NDArray[np.uint32]:
    blocks = np.arange(first, first + len(marks), dtype=np.uint64)
    checksums = marks["checksum"].astype(np.uint64)
    mixed = marks["serial"] * _MIX[0] + checksums * _MIX[1] + (blocks + 1) * _MIX[2]
    checks: npt.NDArray[np.uint32] = (mixed >> np.uint64(32)).astype(np.uint32)
    return checks


def make_head(layout: Layout, shown_name: str) -> bytes:
    """Return the head of a block file. Pure."""
    shown = shown_name.encode(errors="replace")[:_LONGEST_NAME]
    head = _HEAD.pack(MAGIC, _VERSION, layout.block_bytes, layout.size_bytes, len(shown)) + shown
    head = head.ljust(HEAD_BYTES - 4, b"\0")
    return head + zlib.crc32(head).to_bytes(4, "little")


def parse_head(head: bytes) -> tuple[Layout, str] | None:
    """Return the layout and the shown name of a block file, None if it is none. Pure."""
    if len(head) != HEAD_BYTES or zlib.crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return None
    magic, version, block_bytes, size_bytes, length = _HEAD.unpack_from(head)
    if (magic, version) != (MAGIC, _VERSION) or not is_block_size(block_bytes):
        return None
    layout = Layout(size_bytes, block_bytes)
    if layout.num_blocks > config.MOST_CACHED_BLOCKS:
        return None
    return layout, head[_HEAD.size : _HEAD.size + length].decode(errors="replace")


def is_block_size(block_bytes: int) -> bool:
    """Return whether blocks may have so many bytes. Pure."""
    return 0 < block_bytes < 1 << 32 and block_bytes % 4096 == 0
