# SPDX-License-Identifier: Apache-2.0
"""Data files whose row groups are not episodes, decoded once per machine.

Most datasets on the Hub have one row group per data file, so that each episode would decode its
file whole. The first process that needs such a file writes its columns into the cache as they lie
in memory (Arrow IPC); all map that, and an episode is a slice. Encoded pictures are not shared:
they are the bulk of a file, and are no larger than what they are read from.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.errors import CacheError, DataFileError
from robostream.meta import LeRobotDatasetMetadata
from robostream.storage import Cache, WholeFile, cache_limit

logger = logging.getLogger(__name__)

_MAPPED_FILES = 64  # per reader
_VERSION = "rows 1"


class SharedRows:
    """The decoded data files of a dataset, for one reader. Pickles without what it has mapped."""

    def __init__(self, meta: LeRobotDatasetMetadata, keys: Sequence[str]) -> None:
        self._root = meta.location.local_root
        self._keys = list(keys)
        has_pictures = any(meta.features[key]["dtype"] == "image" for key in keys)
        self._is_shared = self._root is not None and not has_pictures
        self._mapped: OrderedDict[str, tuple[WholeFile, pa.Table]] = OrderedDict()

    def table(self, relative: str) -> pa.Table | None:
        """Return all rows of a data file, decoded now if nobody has yet.

        None if they cannot be shared: a remote file, pictures, or a cache without room.
        """
        if relative in self._mapped:
            self._mapped.move_to_end(relative)
            return self._mapped[relative][1]
        cache = _cache() if self._is_shared else None
        if cache is None or self._root is None:
            return None
        file = _decoded(cache, (self._root / relative).resolve(), self._keys)
        if file is None:
            self._is_shared = False  # the cache has told why; decoding to no avail costs twice
            return None
        try:
            table = pa.ipc.open_file(pa.memory_map(str(file.path))).read_all()
        except pa.ArrowInvalid as error:
            logger.warning(
                "%s: not the rows that were kept there (%s); `robostream cache clear` removes it",
                file.path,
                error,
            )
            self._is_shared = False
            return None
        self._mapped[relative] = (file, table)
        if len(self._mapped) > _MAPPED_FILES:
            self._mapped.popitem(last=False)
        return table

    def close(self) -> None:
        """Let go of all files."""
        self._mapped.clear()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": OrderedDict()}


def _decoded(cache: Cache, path: Path, keys: Sequence[str]) -> WholeFile | None:
    """Return the decoded columns of a Parquet file as they are kept for its present content."""
    state = path.stat()
    version = repr((_VERSION, state.st_size, state.st_mtime_ns, list(keys)))

    def make() -> tuple[int, Callable[[BinaryIO], None]]:
        table, after = pq.read_table(path, columns=list(keys)), path.stat()
        if (after.st_size, after.st_mtime_ns) != (state.st_size, state.st_mtime_ns):
            raise DataFileError(f"{path}: the file changed while it was read. Start again.")
        return _ipc(table)

    return cache.whole(str(path), version, make)


def _ipc(table: pa.Table) -> tuple[int, Callable[[BinaryIO], None]]:
    """Return the size of a table as an IPC file, and what writes it: one piece per column."""
    whole = table.combine_chunks()

    def write(sink: Any) -> None:
        with pa.ipc.new_file(sink, whole.schema) as writer:
            writer.write_table(whole)

    size = pa.MockOutputStream()
    write(size)
    return size.size(), write


@lru_cache(maxsize=1)
def _cache() -> Cache | None:
    folder = config.cache_home()
    try:
        limit_bytes = cache_limit(folder, None)
        return Cache(folder, limit_bytes) if limit_bytes else None
    except CacheError as error:
        logger.warning("decoded rows are not shared: %s", error)
        return None
