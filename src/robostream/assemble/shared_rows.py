# SPDX-License-Identifier: Apache-2.0
"""Data files with long row groups, decoded once per machine.

Most datasets on the Hub have one row group per data file, so each episode would decode its whole
file. The first process that needs such a file writes its decoded columns into the cache; all
processes map that file, and an episode is a slice of it. Encoded images are the bulk of a file and
no smaller there, so they are shared only where memory is too small for them.

A shared file is a sequence of blocks, each an Arrow IPC stream, then a `_BLOCK` record for each
block, then `_FOOT`. A process verifies the checksum of a block before it first reads the block.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from robostream.assemble.opened import OpenedDataset
from robostream.errors import CacheError
from robostream.meta import OpenParquet
from robostream.storage import (
    Cache,
    FileOpener,
    LruCache,
    MappedFile,
    discard_mapped_file,
    open_cache,
    open_mapped_file,
)

logger = logging.getLogger(__name__)

_IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)

_MAPPED_FILES = 64  # per reader
_VERSION = "rows 3"
# A block is verified at once, in 1 ms. An episode that crosses blocks has its numbers copied.
_BLOCK_BYTES = 2 * 1024**2
# Rows and bytes of the file up to the block's end, and the CRC-32 of its bytes.
_BLOCK = np.dtype([("stop_row", "<i8"), ("stop_byte", "<i8"), ("checksum", "<u4")])
_FOOT = struct.Struct("<II")  # number of blocks, CRC-32 of the file's key and the block records


class _DamagedRowsError(Exception):
    """A shared file is damaged; the arguments are the file and the reason."""


class MappedRows:
    """The decoded rows of a data file, mapped. The cache does not evict it while this lives."""

    def __init__(self, file: MappedFile, key: str) -> None:
        self._file = file
        content = memoryview(pa.memory_map(str(file.path)).read_buffer())
        count, checksum = _FOOT.unpack(bytes(content[-_FOOT.size :]).ljust(_FOOT.size, b"\0"))
        records = content[: -_FOOT.size][-count * _BLOCK.itemsize :] if count else content[:0]
        if zlib.crc32(records, zlib.crc32(key.encode())) != checksum:
            raise _DamagedRowsError(file, "its end does not match its checksum")
        self._content = content
        self._blocks = np.frombuffer(records, _BLOCK)
        self._tables: dict[int, pa.Table] = {}  # of verified blocks

    def read(self, first: int, length: int) -> pa.Table:
        """Return the rows [first, first + length) without a copy; raise if they are damaged."""
        stops = self._blocks["stop_row"]
        begin = int(np.searchsorted(stops, first, side="right"))
        stop = int(np.searchsorted(stops, first + length, side="left")) + 1
        rows = pa.concat_tables(map(self._read_block, range(begin, stop)))
        return rows.slice(first - (int(stops[begin - 1]) if begin else 0), length)

    def _read_block(self, number: int) -> pa.Table:
        if number not in self._tables:
            start = int(self._blocks["stop_byte"][number - 1]) if number else 0
            content = self._content[start : int(self._blocks["stop_byte"][number])]
            if zlib.crc32(content) != self._blocks["checksum"][number]:
                reason = f"the block at byte {start} does not match its checksum"
                raise _DamagedRowsError(self._file, reason)
            stream = pa.ipc.open_stream(content, options=_IN_THIS_THREAD)
            self._tables[number] = stream.read_all()
        return self._tables[number]


class SharedRows:
    """Some columns of a dataset's data files, decoded once per machine. For one reader."""

    def __init__(self, dataset: OpenedDataset, opener: FileOpener, keys: Sequence[str]) -> None:
        self._opener = opener
        self._settings, self._is_remote = dataset.files.cache, dataset.files.is_remote
        self._keys = list(keys)
        self._is_shared = self._settings is not None
        self._mapped: LruCache[str, MappedRows] = LruCache(_MAPPED_FILES)

    def get(self, relative: str, first: int, length: int) -> tuple[pa.Table, MappedRows] | None:
        """Return rows [first, first + length) of a data file, and the mapped file they are from.

        Decodes the file if no process has yet. None if it cannot be shared: the file has no
        version, or the cache has no space.
        """
        for _ in range(2):
            try:
                mapped = self._mapped.get(relative) or self._map(relative)
                return None if mapped is None else (mapped.read(first, length), mapped)
            except _DamagedRowsError as error:
                self._mapped.forget(relative)
                file, reason = error.args
                logger.warning(
                    "%s: the decoded rows are damaged (%s); decoding again", file.path, reason
                )
                cache = self._open_cache()
                if cache is not None:
                    discard_mapped_file(cache, file)
        return None

    def close(self) -> None:
        """Release all files."""
        self._mapped.clear()

    def _map(self, relative: str) -> MappedRows | None:
        """Return the decoded columns of the current version of a data file; None if not shared."""
        source = self._opener.open(relative)
        cache = self._open_cache() if self._is_shared and source.version() else None
        key = repr((_VERSION, source.identity, source.size(), source.version(), self._keys))

        def blocks() -> Iterator[pa.Table]:
            with OpenParquet(source, columns_together=self._is_remote) as file:
                yield from _blocks(file, self._keys)

        def make() -> tuple[int, Callable[[BinaryIO], None]]:
            return _measure(blocks()), lambda sink: _write(blocks(), key, sink)

        file = None if cache is None else open_mapped_file(cache, source.identity, key, make)
        if file is None:
            self._is_shared = False  # trying again would decode each file twice
            return None
        return self._mapped.put(relative, MappedRows(file, key))

    def _open_cache(self) -> Cache | None:
        try:
            return None if self._settings is None else open_cache(self._settings)
        except CacheError as error:
            logger.warning("decoded rows are not shared: %s", error)
            return None


def _blocks(file: OpenParquet, columns: Sequence[str]) -> Iterator[pa.Table]:
    for group in range(file.num_row_groups):
        table = file.read_row_groups([group], columns).combine_chunks()
        rows = max(1, table.num_rows * _BLOCK_BYTES // max(1, table.nbytes))
        for first in range(0, table.num_rows, rows):
            yield table.slice(first, rows)


def _write_block(table: pa.Table, sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def _measure(blocks: Iterator[pa.Table]) -> int:
    """Return the number of bytes that `_write` will write."""
    sink, nbytes = pa.MockOutputStream(), _FOOT.size
    for block in blocks:
        _write_block(block, sink)
        nbytes += _BLOCK.itemsize
    return int(sink.size()) + nbytes


def _write(blocks: Iterator[pa.Table], key: str, sink: BinaryIO) -> None:
    records: list[tuple[int, int, int]] = []
    rows = nbytes = 0
    for block in blocks:
        buffer = pa.BufferOutputStream()
        _write_block(block, buffer)
        content = buffer.getvalue()
        sink.write(content)
        rows, nbytes = rows + block.num_rows, nbytes + content.size
        records.append((rows, nbytes, zlib.crc32(content)))
    listed = np.array(records, _BLOCK).tobytes()
    sink.write(listed + _FOOT.pack(len(records), zlib.crc32(listed, zlib.crc32(key.encode()))))
