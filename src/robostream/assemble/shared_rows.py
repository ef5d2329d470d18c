# SPDX-License-Identifier: Apache-2.0
"""Data files whose row groups are not episodes, decoded once per machine.

Most datasets on the Hub have one row group per data file, so that each episode would decode its
file whole. The first process that needs such a file writes its columns into the cache as they lie
in memory (Arrow IPC); all map that, and an episode is a slice. Encoded pictures are the bulk of a
file and no smaller there, so they are shared only where memory is too small for them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa

from robostream.assemble.opened import OpenedDataset
from robostream.errors import CacheError
from robostream.meta import OpenParquet, open_parquet
from robostream.storage import ByteSource, Cache, CacheSettings, Door, Recent, WholeFile, open_cache

logger = logging.getLogger(__name__)

_IN_THIS_THREAD = pa.ipc.IpcReadOptions(use_threads=False)

_MAPPED_FILES = 64  # per reader
_VERSION = "rows 2"


class MappedRows(NamedTuple):
    """All rows of a data file, and the file they are mapped from, which stays as long as this."""

    file: WholeFile
    table: pa.Table


class SharedRows:
    """The decoded data files of a dataset, for one reader.

    Args:
        dataset: The dataset.
        door: What opens its files.
        keys: The columns that are read.
    """

    def __init__(self, dataset: OpenedDataset, door: Door, keys: Sequence[str]) -> None:
        self._door = door
        self._settings, self._is_far = dataset.files.cache, dataset.files.is_far
        self._keys = list(keys)
        self._is_shared = self._settings is not None
        self._mapped: Recent[str, MappedRows] = Recent(_MAPPED_FILES)

    def get(self, relative: str) -> MappedRows | None:
        """Return all rows of a data file, decoded now if nobody has yet.

        None if they cannot be shared: a file without a version, a cache without room.
        """
        mapped = self._mapped.get(relative)
        if mapped is None and self._is_shared:
            mapped = self._map(self._door.open(relative))
            self._is_shared = mapped is not None  # what cannot be shared would be decoded twice
            if mapped is not None:
                self._mapped.put(relative, mapped)
        return mapped

    def close(self) -> None:
        """Let go of all files."""
        self._mapped.clear()

    def _map(self, source: ByteSource) -> MappedRows | None:
        cache = None if self._settings is None else _open_cache(self._settings)
        file = None if cache is None else self._decoded(cache, source)
        if file is None:
            return None
        try:
            mapped = pa.ipc.open_file(pa.memory_map(str(file.path)), options=_IN_THIS_THREAD)
            return MappedRows(file, mapped.read_all())
        except pa.ArrowInvalid as error:
            logger.warning(
                "%s: not the rows that were kept there (%s); `robostream cache clear` removes it",
                file.path,
                error,
            )
            return None

    def _decoded(self, cache: Cache, source: ByteSource) -> WholeFile | None:
        """Return the decoded columns of a Parquet file as they are kept for its present content."""
        state = source.size(), source.version()
        if not state[1]:
            return None

        def write(sink: Any) -> None:
            with open_parquet(source, columns_together=self._is_far) as file:
                _write_ipc(file, self._keys, sink)

        def make() -> tuple[int, Callable[[BinaryIO], None]]:
            size = pa.MockOutputStream()
            write(size)
            return size.size(), write

        return cache.whole(source.identity, repr((_VERSION, *state, self._keys)), make)


def _write_ipc(file: OpenParquet, columns: Sequence[str], sink: Any) -> None:
    """Write columns as an IPC file: a row group at a time, each in one piece."""
    with pa.ipc.new_file(sink, file.read_row_groups([], columns).schema) as writer:
        for group in range(file.num_row_groups):
            writer.write_table(file.read_row_groups([group], columns).combine_chunks())


def _open_cache(settings: CacheSettings) -> Cache | None:
    try:
        return open_cache(settings)
    except CacheError as error:
        logger.warning("decoded rows are not shared: %s", error)
        return None
