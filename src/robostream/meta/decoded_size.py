# SPDX-License-Identifier: Apache-2.0
"""Bounds the memory of decoded Parquet by its page headers.

A footer gives only the encoded size of columns, and it may be wrong. A few bytes of a page can
decode to gigabytes: repeated values, long texts in a dictionary, zeros in zstd. Arrow allocates
what the page headers say, so they are read here, and memory is counted before Arrow allocates it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.errors import DataFileError
from robostream.storage import SourceFile

ReadRange = Callable[[int, int], bytes]

READ_OPTIONS = {"pre_buffer": False, "page_checksum_verification": True}

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}
_OFFSET_BYTES = 4  # of a text, or of a list, in Arrow
_LEVEL_BYTES = 4  # definition and repetition levels of a value while it is decoded
_ENTRY_BYTES = 16  # of a dictionary's text while it is decoded
# The largest compression ratio of each codec; other codecs have no limit.
_MOST_RATIO = {"UNCOMPRESSED": 1, "SNAPPY": 24, "LZ4": 256, "GZIP": 1040, "ZSTD": 1 << 15}
# Columns of numbers that cannot exceed this have no page headers read.
_SMALL_BYTES = 1024**2
_SMALL_CHUNK_BYTES = 32 * 1024  # a smaller column chunk is read in one go
_HEADER_BYTES = (256, 16 * 1024, 16 * 1024**2)  # read for a page header, until it is complete
_DICTIONARY_PAGE = 2
# By kind of page (data, dictionary, data v2): the field of its struct, and there the encoding.
_BY_KIND = {0: (5, 2), 2: (7, 2), 3: (8, 4)}
_DICTIONARY_ENCODINGS, _DELTA_BYTE_ARRAY = (2, 8), 7
# Types of Thrift fields: true, false, byte and double; then i16, i32, i64, binary and struct.
_FIXED_BYTES = {1: 0, 2: 0, 3: 1, 7: 8}
_I32, _BINARY, _STRUCT = 5, 8, 12
_KINDS = frozenset((*_FIXED_BYTES, 4, _I32, 6, _BINARY, _STRUCT))


class DecodeBudget:
    """The memory that several reads of Parquet may take together.

    The default limit is that of `ROBOSTREAM_DECODE_LIMIT`.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self._limit = config.decode_limit_bytes() if limit_bytes is None else limit_bytes
        self.used = 0  # by the tables that finished reads have returned

    def take(self, nbytes: int, where: str, *, temporary: int = 0) -> None:
        """Count the bytes that a read returns, or raise; `temporary` ones only while it decodes."""
        wanted = self.used + nbytes + temporary
        if wanted > self._limit:
            raise DataFileError(
                f"{where}: decoded, it would take {format_bytes(wanted)} of memory; want at most "
                f"{format_bytes(self._limit)}. Download it again if it should be smaller; if it is "
                f"what it should be, set {config.DECODE_LIMIT_NAME} to more, such as "
                f"{wanted // 1024**3 + 1}GiB."
            )
        self.used += nbytes

    def correct(self, used: int) -> None:
        """Set the bytes in use, once they are known better."""
        self.used = used


class Leaf(NamedTuple):
    """A leaf column of the Parquet schema: the values of a list are one."""

    at: int  # its number in the file
    path: str
    width: int  # the bytes of a value and of the list offsets above it; without those of a text
    is_text: bool  # whether values are bytes of any length
    is_repeated: bool
    is_plain_text: bool  # whether Arrow can leave its values dictionary-encoded


class Pages(NamedTuple):
    """Totals of the page headers of a column chunk."""

    values: int  # of all data pages, with nulls
    coded: int  # those of them that are dictionary indices
    temporary: int  # bytes of the dictionary and of the largest page, decompressed
    dictionary: int  # bytes, decompressed
    texts: int  # the most bytes that texts outside the dictionary can have


class DecodedSize:
    """Counts the decoded memory of columns of one file; `where` names it in errors."""

    def __init__(self, file: BytesIO | SourceFile, metadata: Any, where: str) -> None:
        self._file = file
        self._metadata = metadata
        self._where = where
        self._leaves: dict[tuple[str, ...], list[Leaf]] = {}
        self._reopened: dict[str, pq.ParquetFile] = {}

    def take(self, groups: Sequence[int], columns: Sequence[str], budget: DecodeBudget) -> None:
        """Count columns of row groups, or raise DataFileError."""
        # Dictionary texts first count as if each were as long as the whole dictionary; only if
        # that exceeds the budget, they are counted one by one.
        names, used = tuple(columns), budget.used
        if names not in self._leaves:
            self._leaves[names] = _leaves(self._metadata.schema, names)
        try:
            self._take(groups, self._leaves[names], budget, one_by_one=False)
        except DataFileError:
            if not any(leaf.is_plain_text for leaf in self._leaves[names]):
                raise
            budget.correct(used)
            self._take(groups, self._leaves[names], budget, one_by_one=True)

    def _take(
        self, groups: Sequence[int], leaves: Sequence[Leaf], budget: DecodeBudget, one_by_one: bool
    ) -> None:
        for number in groups:
            group = self._metadata.row_group(number)
            if group.num_rows < 0:
                raise DataFileError(f"{self._where}: row group {number} has a negative length.")
            temporary = 0
            for leaf in leaves:
                temporary += self._take_chunk(group, number, leaf, budget, one_by_one)
                budget.take(0, self._where, temporary=temporary)

    def _take_chunk(
        self, group: Any, number: int, leaf: Leaf, budget: DecodeBudget, one_by_one: bool
    ) -> int:
        """Count a column chunk; return the bytes it needs while it is decoded."""
        chunk = group.column(leaf.at)
        if not leaf.is_text and not leaf.is_repeated:
            budget.take(group.num_rows * leaf.width, self._where)
            most = chunk.total_compressed_size * _MOST_RATIO.get(chunk.compression, _SMALL_BYTES)
            return most if most <= _SMALL_BYTES else self._pages(chunk, number, leaf).temporary
        pages = self._pages(chunk, number, leaf)
        values: int = max(group.num_rows, pages.values)
        temporary = pages.temporary + values * _LEVEL_BYTES
        budget.take(values * leaf.width, self._where)
        if leaf.is_text:
            texts = pages.texts + pages.coded * pages.dictionary
            if one_by_one and pages.coded and leaf.is_plain_text:
                budget.take(0, self._where, temporary=pages.texts + temporary)
                texts = self._count_texts(number, leaf.path)
            budget.take(texts, self._where)
        return temporary

    def _count_texts(self, group: int, path: str) -> int:
        """Return the bytes of all texts of a column, from its dictionary and indices."""
        import pyarrow.compute as pc  # on demand: workers start a tenth faster without it

        if path not in self._reopened:
            options = {"metadata": self._metadata, "read_dictionary": [path], **READ_OPTIONS}
            self._reopened[path] = pq.ParquetFile(self._file, **options)
        table = self._reopened[path].read_row_group(group, [path], use_threads=False)
        total = 0
        for array in table.column(0).chunks:
            while not pa.types.is_dictionary(array.type):
                array = array.field(0) if pa.types.is_struct(array.type) else array.flatten()
            lengths = pc.binary_length(array.dictionary).cast(pa.int64())
            total += int(pc.sum(lengths.take(array.indices)).as_py() or 0)
        return total

    def _read(self, start: int, stop: int) -> bytes:
        self._file.seek(start)
        return self._file.read(stop - start) or b""

    def _pages(self, chunk: Any, group: int, leaf: Leaf) -> Pages:
        values = coded = dictionary = entries = largest = texts = 0
        try:
            pages = _page_headers(self._read, *chunk_range(chunk), chunk.num_values)
            for kind, size, count, encoding in pages:
                if kind == _DICTIONARY_PAGE:
                    dictionary, entries = dictionary + size, entries + count
                    continue
                largest, values = max(largest, size), values + count
                if encoding in _DICTIONARY_ENCODINGS:
                    coded += count
                elif encoding == _DELTA_BYTE_ARRAY:
                    # A text may repeat any part of the one before.
                    texts += size * max(count, 1)
                else:
                    texts += size
        except (KeyError, TypeError, ValueError) as error:
            raise DataFileError(
                f"{self._where}: a page header of row group {group}, column {leaf.path}, cannot be "
                f"read ({error}). The file is damaged: copy or download it again."
            ) from error
        temporary = largest + dictionary + entries * _ENTRY_BYTES
        return Pages(values, coded, temporary, dictionary, texts)


def _leaves(schema: Any, columns: Sequence[str]) -> list[Leaf]:
    """Return the leaf columns of named columns, as Arrow selects them; the small ones first."""
    names, leaves = tuple(f"{name}." for name in columns), []
    for at in range(len(schema)):
        column = schema.column(at)
        if f"{column.path}.".startswith(names):
            kind, repeats = column.physical_type, column.max_repetition_level
            is_text = kind == "BYTE_ARRAY"
            width = _OFFSET_BYTES if is_text else _WIDTHS.get(kind) or max(column.length, 0)
            width += repeats * _OFFSET_BYTES
            is_plain = is_text and column.logical_type.type in ("STRING", "NONE")
            leaves.append(Leaf(at, column.path, width, is_text, repeats > 0, is_plain))
    return sorted(leaves, key=lambda leaf: leaf.is_text or leaf.is_repeated)


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return the bytes [start, stop) of a column chunk, as Arrow reads them."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < start:
        start = dictionary
    return start, start + chunk.total_compressed_size


def _page_headers(
    read: ReadRange, start: int, stop: int, values: int
) -> Iterator[tuple[int, int, int, int]]:
    """Yield of each page its kind, its bytes decompressed, its values and their encoding.

    Ends with the range of bytes, or once the data pages have `values` values.
    """
    # A header is a Thrift struct of these fields: 1 the kind of page, 2 its size decompressed, 3
    # its stored size, and a struct that depends on the kind, of which 1 is the number of values.
    if stop - start <= _SMALL_CHUNK_BYTES:
        content, first = read(start, stop), start
        read = lambda begin, end: content[begin - first : end - first]  # noqa: E731
    while start < stop and values > 0:
        header, length = _header(read, start, stop)
        kind = header[1]
        struct, encoding = _BY_KIND.get(kind, (None, 0))
        inner = {1: 0, 0: -1} if struct is None else header[struct]
        size, count, stored = header[2], inner[1], header[3]
        if min(size, count, stored) < 0:
            raise ValueError("a negative size")
        yield kind, size, count, inner[encoding]
        if kind != _DICTIONARY_PAGE:
            values -= count
        start += length + stored


def _header(read: ReadRange, start: int, stop: int) -> tuple[dict[int, Any], int]:
    for most in _HEADER_BYTES:
        content = read(start, min(stop, start + most))
        try:
            return _struct(content, 0)
        except IndexError:
            continue
    raise ValueError("it has no end")


def _struct(content: bytes, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return the i32 fields and structs of a Thrift struct, and where it ends."""
    fields: dict[int, Any] = {}
    number = 0
    while (head := content[at]) != 0:
        kind = head & 15
        at += 1
        if head < 16 or kind not in _KINDS or depth > 3:
            raise ValueError("fields that no Parquet file has")
        number += head >> 4
        if kind == _STRUCT:
            fields[number], at = _struct(content, at, depth + 1)
        elif kind in _FIXED_BYTES:
            at += _FIXED_BYTES[kind]
        else:
            value, at = _varint(content, at) if content[at] > 127 else (content[at], at + 1)
            if kind == _BINARY:
                at += value
            elif kind == _I32:
                fields[number] = (value >> 1) ^ -(value & 1)
                if value >> 32:
                    raise ValueError("a number of more than 32 bits")
    return fields, at + 1


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := content[at]) > 127:
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return number | byte << shift, at + 1
