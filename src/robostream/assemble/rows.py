# SPDX-License-Identifier: Apache-2.0
"""The rows of an episode, read from the row groups that hold it, and cached within a budget.

Images stored in Parquet may exceed the budget. Each of them would then read its whole row group
again. So once the cache has evicted something, images are mapped from a file of decoded rows
(`shared_rows.py`), which the operating system keeps in memory as it can.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream import config
from robostream.assemble.columns import (
    DeclaredColumn,
    check_columns,
    check_episode,
    check_times,
    numeric_column,
    object_column,
)
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.shared_rows import MappedRows, SharedRows
from robostream.errors import DataFileError
from robostream.meta import DEFAULT_FEATURES, LeRobotDatasetMetadata, OpenParquet, readable_parquet
from robostream.storage import ByteSource, FileOpener, LruCache

logger = logging.getLogger(__name__)

_OPEN_FILES = 16  # open Parquet files per reader; each holds a footer, not data
_MAPPED_EPISODES = 64  # per cache; each may keep a file open
# Row groups this many times as long as the episode are decoded once for the whole machine.
_WORTH_SHARING = 2
# Arrow reads this much of the end of a file to find its footer.
_FOOTER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """The rows of one episode as arrays; texts and encoded images stay in Arrow."""

    episode: int
    length: int
    numbers: dict[str, npt.NDArray[Any]]
    objects: dict[str, pa.Array | pa.ChunkedArray]
    # The decoded rows of the file that these are a slice of; None for a copy.
    mapped: MappedRows | None = None

    @property
    def nbytes(self) -> int:
        """The bytes of all columns."""
        return sum(a.nbytes for a in [*self.numbers.values(), *self.objects.values()])

    def object_at(self, key: str, frame: int) -> Any:
        """Return one text, language list or encoded image as a Python value."""
        return self.objects[key][frame].as_py()


# Rows by (row cache, episode): the row caches of a process share this memory.
RowLru: TypeAlias = LruCache[tuple[object, int], EpisodeRows]


def new_row_lru(budget_bytes: int) -> RowLru:
    """Return an empty cache of rows, which holds at least one episode however large."""
    return LruCache(budget_bytes, weigh=lambda rows: rows.nbytes)


class RowCache:
    """Reads some columns of episodes on first use. For one thread.

    `lru` is the memory for rows, shared by all row caches of a process. With `checks_times`, checks
    timestamps if there are videos, and warns once if tasks or indices differ from those of the
    episode table.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        opener: FileOpener,
        keys: Sequence[str],
        lru: RowLru,
        *,
        checks_times: bool,
    ) -> None:
        spec = dataset.spec
        tolerance_s = spec.tolerance_s if checks_times and spec.videos else None
        self._reader = RowReader(dataset, opener, keys, tolerance_s=tolerance_s)
        self._meta = dataset.meta
        self._compares = checks_times
        self._lru = lru
        self._mapped: LruCache[int, EpisodeRows] = LruCache(_MAPPED_EPISODES)

    def get(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode."""
        lru = self._lru
        return lru.get((self, episode)) or self._mapped.get(episode) or self._read(episode)

    def _read(self, episode: int) -> EpisodeRows:
        rows = self._reader.read(episode, maps_images=self._lru.has_evicted)
        if self._compares:
            has_warned = _warn_of_tasks(self._meta, rows) or _warn_of_index(self._meta, rows)
            self._compares = not has_warned
        if rows.mapped is not None:
            return self._mapped.put(episode, rows)
        return self._lru.put((self, episode), rows)

    def close(self) -> None:
        """Close all files, and release the rows that are mapped from them."""
        self._mapped.clear()
        self._reader.close()


class RowBytes(NamedTuple):
    """The byte ranges [start, stop) that hold the rows of an episode."""

    file: str  # the data file, relative to the dataset's root
    groups: tuple[int, int]
    are_shared: bool  # whether one process decodes the groups for all, which then never read them


class _DataFile(NamedTuple):
    """An open Parquet file: its path, its name in messages, the rows at which row groups end."""

    path: str
    where: str
    parquet: OpenParquet
    ends: npt.NDArray[np.int64]


class RowReader:
    """Reads columns of episodes, besides the five of every dataset. For one thread.

    `tolerance_s` is how far a timestamp may be from frame_index / fps; None for no check.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        opener: FileOpener,
        keys: Sequence[str],
        tolerance_s: float | None = None,
    ) -> None:
        meta = dataset.meta
        self._location = dataset.files
        self._opener = opener
        self._meta = meta
        self._tolerance_s = tolerance_s
        self._keys = [*dict.fromkeys([*keys, *DEFAULT_FEATURES])]
        self._first_rows = _first_rows(meta)
        self._files: LruCache[str, _DataFile] = LruCache(
            _OPEN_FILES, drop=lambda file: file.parquet.close()
        )
        self._has_images = any(meta.features[key]["dtype"] == "image" for key in self._keys)
        self._shared = SharedRows(dataset, opener, self._keys)
        # The row groups read last, if they hold several episodes, for the episodes next to it.
        self._last_groups: tuple[tuple[str, int, int], pa.Table] | None = None

    def read(self, episode: int, *, maps_images: bool = False) -> EpisodeRows:
        """Return the rows of an episode, checked against meta/; mapped images are not copied."""
        file = self._open(episode)
        table, mapped = self._table(file, episode, maps_images)
        numbers: dict[str, npt.NDArray[Any]] = {}
        objects: dict[str, pa.Array | pa.ChunkedArray] = {}
        place = f"{file.where}: episode {episode}"
        for key in self._keys:
            declared = self._declared(key, place)
            if declared.dtype in ("string", "image", "language"):
                with readable_parquet(place):
                    objects[key] = object_column(table.column(key), declared, copy=mapped is None)
            else:
                numbers[key] = numeric_column(table.column(key), declared)
        check_episode(numbers, episode, table.num_rows, file.where)
        if self._tolerance_s is not None:
            times, frames = numbers["timestamp"], numbers["frame_index"]
            check_times(times, frames, self._meta.fps, self._tolerance_s, place)
        return EpisodeRows(episode, table.num_rows, numbers, objects, mapped)

    def read_numbers(self, episodes: range) -> dict[str, npt.NDArray[Any]]:
        """Return the columns, all numeric, of consecutive episodes of one file, checked."""
        file = self._open(episodes[0])
        (first, offset), (last, _) = (self._groups(file, episodes[i]) for i in (0, -1))
        lengths = self._meta.episodes["length"][episodes.start : episodes.stop]
        ends = np.cumsum(lengths)
        groups, count = range(first.start, last.stop), int(ends[-1])
        table = self._read_groups(file, groups, count).slice(offset, count)
        place = f"{file.where}: episodes {episodes[0]} to {episodes[-1]}"
        columns = {
            key: numeric_column(table.column(key), self._declared(key, place)) for key in self._keys
        }
        for episode, begin, end in zip(episodes, ends - lengths, ends, strict=True):
            own = {key: columns[key][begin:end] for key in DEFAULT_FEATURES}
            check_episode(own, episode, int(end - begin), file.where)
        return columns

    def footer(self, episode: int) -> tuple[str, int, int]:
        """Return an episode's file, and the bytes that every opening of it reads. Thread-safe."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        size = self._open_source(relative).size()
        return relative, max(size - _FOOTER_BYTES, 0), size

    def find(self, episode: int) -> RowBytes:
        """Return the byte ranges of an episode's rows."""
        file = self._open(episode)
        groups, _ = self._groups(file, episode)
        are_shared = self._are_shared(file, episode, groups)
        return RowBytes(file.path, file.parquet.byte_span(groups), are_shared)

    def close(self) -> None:
        """Close all files."""
        self._files.clear()
        self._shared.close()
        self._last_groups = None

    def _table(
        self, file: _DataFile, episode: int, maps_images: bool
    ) -> tuple[pa.Table, MappedRows | None]:
        """Return an episode's rows, and the mapped rows they are a slice of if they stay mapped."""
        groups, offset = self._groups(file, episode)
        length = int(self._meta.episodes["length"][episode])
        if self._has_images:
            # Sharing a remote file would fetch all of it.
            is_shared = maps_images and not self._location.is_remote
        else:
            is_shared = self._are_shared(file, episode, groups)
        if is_shared:
            _check_sizes(file, range(len(file.ends)))
            with readable_parquet(file.where):
                shared = self._shared.get(file.path, int(self._first_rows[episode]), length)
            if shared is not None:
                rows, mapped = shared
                return rows, mapped if self._has_images else None
        return self._read_groups(file, groups, length).slice(offset, length), None

    def _are_shared(self, file: _DataFile, episode: int, groups: range) -> bool:
        """Return whether an episode's row groups are long enough to be decoded for all."""
        rows = file.ends[groups.stop - 1] - (file.ends[groups.start - 1] if groups.start else 0)
        return bool(rows > _WORTH_SHARING * int(self._meta.episodes["length"][episode]))

    def _groups(self, file: _DataFile, episode: int) -> tuple[range, int]:
        """Return the row groups of an episode, and the row in them at which it begins."""
        first_row = int(self._first_rows[episode])
        length = int(self._meta.episodes["length"][episode])
        ends, where = file.ends, file.where
        if len(ends) == 0 or ends[-1] < first_row + length:
            raise DataFileError(
                f"{where}: episode {episode} should be rows [{first_row}, {first_row + length}) of "
                f"the file, which has {ends.max(initial=0)}. It is from another version of the "
                "dataset; copy it again."
            )
        if self._meta.info.is_v2 and ends[-1] > length:
            raise DataFileError(
                f"{where}: episode {episode} has {length} frames in meta/, but the file has "
                f"{ends[-1]} rows. One of them is from another version of the dataset; copy both "
                "again."
            )
        begin = int(np.searchsorted(ends, first_row, side="right"))
        stop = int(np.searchsorted(ends, first_row + length, side="left")) + 1
        return range(begin, stop), first_row - (int(ends[begin - 1]) if begin else 0)

    def _declared(self, key: str, place: str) -> DeclaredColumn:
        entry = self._meta.features[key]
        return DeclaredColumn(key, entry["dtype"], entry["shape"], place)

    def _read_groups(self, file: _DataFile, groups: range, wanted: int) -> pa.Table:
        """Return row groups, which are kept if they hold more than the `wanted` rows."""
        key = (file.path, groups.start, groups.stop)
        if self._last_groups is not None and self._last_groups[0] == key:
            return self._last_groups[1]
        _check_sizes(file, groups)
        if self._location.is_remote:
            self._opener.open(file.path).ensure_cached(*file.parquet.byte_span(groups))
        with readable_parquet(file.where):
            table = file.parquet.read_row_groups(groups, self._keys)
        if table.num_rows > wanted:
            self._last_groups = key, table
        return table

    def _open_source(self, relative: str) -> ByteSource:
        source = self._opener.open(relative)
        if not self._meta.image_keys:  # of large files, the cache may have the start
            source.fetch_start()
        return source

    def _open(self, episode: int) -> _DataFile:
        """Return the open data file of an episode."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        opened = self._files.get(relative)
        if opened is not None:
            return opened
        where = self._location.describe(relative)
        with readable_parquet(where):
            source = self._open_source(relative)
        # One request fetches all columns of a remote row group.
        file = OpenParquet(source, columns_together=self._location.is_remote)
        check_columns(file, self._keys, self._meta, where)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        ends = np.cumsum(counts, dtype=np.int64)
        return self._files.put(relative, _DataFile(relative, where, file, ends))


def _first_rows(meta: LeRobotDatasetMetadata) -> npt.NDArray[np.int64]:
    """Return the row at which each episode starts in its file."""
    table = meta.episodes
    chunk, file = table["data/chunk_index"], table["data/file_index"]
    new_file = np.ones(len(table), dtype=bool)
    new_file[1:] = (chunk[1:] != chunk[:-1]) | (file[1:] != file[:-1])
    # Episodes of a file are neighbours in the table, so rows count from the last change of file.
    first = np.maximum.accumulate(np.where(new_file, np.arange(len(table)), 0))
    start: npt.NDArray[np.int64] = table["dataset_from_index"]
    return start - start[first]


def _check_sizes(file: _DataFile, groups: range) -> None:
    for group in groups:
        size = file.parquet.metadata.row_group(group).total_byte_size
        if size > config.MOST_ROW_GROUP_BYTES:
            raise DataFileError(
                f"{file.where}: row group {group} says it has {size:,} bytes; want at most "
                f"{config.MOST_ROW_GROUP_BYTES:,}. Write the file with smaller row groups."
            )


def _warn_of_tasks(meta: LeRobotDatasetMetadata, rows: EpisodeRows) -> bool:
    """Warn if rows have tasks that the episode table does not list; return whether they do."""
    listed = meta.episodes[rows.episode].get("tasks")
    if not isinstance(listed, list) or not listed:
        return False
    numbers = sorted({*rows.numbers["task_index"].tolist()})  # np.unique would load numpy.ma
    texts = [meta.tasks[number] for number in numbers if 0 <= number < len(meta.tasks)]
    others = [text for text in texts if text not in listed]
    if others:
        logger.warning(
            "%s: the task of episode %d is %r in %s, but %r in meta/episodes; samples have the "
            "first. Copy meta/ again, unless the texts were edited on purpose. Other episodes are "
            "not named.",
            *(meta.root, rows.episode, others[0], meta.info.tasks_path),
            ", ".join(map(str, listed)),
        )
    return bool(others)


def _warn_of_index(meta: LeRobotDatasetMetadata, rows: EpisodeRows) -> bool:
    """Warn if the index of rows differs from the episode table; return whether it does."""
    wanted = int(meta.episodes["dataset_from_index"][rows.episode]) + np.arange(rows.length)
    index = rows.numbers["index"]
    wrong = np.flatnonzero(index != wanted)
    if wrong.size:
        at = wrong[0]
        logger.warning(
            "%s: frame %d of episode %d has the index %d, want %d as meta/episodes counts; samples "
            "have the first. Other frames are not named.",
            *(meta.root, at, rows.episode, index[at], wanted[at]),
        )
    return bool(wrong.size)
