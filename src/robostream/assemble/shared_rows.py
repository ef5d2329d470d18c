# SPDX-License-Identifier: Apache-2.0
"""Data files whose row groups are not episodes, decoded once per machine.

Most datasets on the Hub have one row group per data file, so that each episode would decode its
file whole. The first process that needs such a file writes its columns into the cache as they lie
in memory (Arrow IPC); all map that, and an episode is a slice. Encoded pictures are not shared:
they are the bulk of a file, and are no larger than what they are read from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from robostream.assemble.opened import OpenedDataset
from robostream.errors import CacheError, DataFileError
from robostream.meta import open_parquet
from robostream.storage import ByteSource, Cache, CacheSettings, Door, Recent, WholeFile, open_cache

logger = logging.getLogger(__name__)

_MAPPED_FILES = 64  # per reader
_VERSION = "rows 1"


class SharedRows:
    """The decoded data files of a dataset, for one reader.

    Args:
        dataset: The dataset.
        door: What opens its files.
        keys: The columns that are read.
    """

    def __init__(self, dataset: OpenedDataset, door: Door, keys: Sequence[str]) -> None:
        self._door = door
        self._settings = dataset.files.cache
        self._keys = list(keys)
        has_pictures = any(dataset.meta.features[key]["dtype"] == "image" for key in keys)
        self._is_shared = self._settings is not None and not has_pictures
        self._mapped: Recent[str, tuple[WholeFile, pa.Table]] = Recent(_MAPPED_FILES)

    def table(self, relative: str) -> pa.Table | None:
        """Return all rows of a data file, decoded now if nobody has yet.

        None if they cannot be shared: pictures, a file without a version, a cache without room.
        """
        mapped = self._mapped.get(relative)
        if mapped is None and self._is_shared:
            mapped = self._map(self._door.open(relative))
            self._is_shared = mapped is not None  # what cannot be shared would be decoded twice
            if mapped is not None:
                self._mapped.put(relative, mapped)
        return None if mapped is None else mapped[1]

    def close(self) -> None:
        """Let go of all files."""
        self._mapped.clear()

    def _map(self, source: ByteSource) -> tuple[WholeFile, pa.Table] | None:
        cache = None if self._settings is None else _open_cache(self._settings)
        file = None if cache is None else _decoded(cache, source, self._keys)
        if file is None:
            return None
        try:
            return file, pa.ipc.open_file(pa.memory_map(str(file.path))).read_all()
        except pa.ArrowInvalid as error:
            logger.warning(
                "%s: not the rows that were kept there (%s); `robostream cache clear` removes it",
                file.path,
                error,
            )
            return None


def _decoded(cache: Cache, source: ByteSource, keys: Sequence[str]) -> WholeFile | None:
    """Return the decoded columns of a Parquet file as they are kept for its present content."""
    state = source.size(), source.version()
    if not state[1]:
        return None

    def make() -> tuple[int, Callable[[BinaryIO], None]]:
        with open_parquet(source, pre_buffer=True) as file:
            table = file.read(columns=list(keys))
        if (source.size(), source.version()) != state:
            raise DataFileError(f"{source.name}: the file changed while it was read. Start again.")
        return _ipc(table)

    return cache.whole(source.name, repr((_VERSION, *state, list(keys))), make)


def _ipc(table: pa.Table) -> tuple[int, Callable[[BinaryIO], None]]:
    """Return the size of a table as an IPC file, and what writes it: one piece per column."""
    whole = table.combine_chunks()

    def write(sink: Any) -> None:
        with pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole)

    size = pa.MockOutputStream()
    write(size)
    return size.size(), write


def _open_cache(settings: CacheSettings) -> Cache | None:
    try:
        return open_cache(settings)
    except CacheError as error:
        logger.warning("decoded rows are not shared: %s", error)
        return None
