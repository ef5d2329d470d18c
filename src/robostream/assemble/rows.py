# SPDX-License-Identifier: Apache-2.0
"""Rows of one episode, read from the row groups that hold it and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream import config
from robostream.assemble.columns import ColumnCase, numeric_column, object_column
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.shared_rows import MappedRows, SharedRows
from robostream.assemble.times import check_times
from robostream.errors import DataFileError
from robostream.meta import (
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    LeRobotDatasetMetadata,
    OpenParquet,
    open_parquet,
    readable_parquet,
)
from robostream.storage import FileOpener, LruCache

_OPEN_FILES = 16  # open Parquet files kept per reader; each holds a footer, not data
# Row groups this many times as long as the episode are decoded once for the whole machine.
_WORTH_SHARING = 2
# What Arrow reads of the end of a file to find its footer.
_FOOTER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """The rows of one episode as arrays; texts and encoded pictures stay in Arrow.

    Attributes:
        mapped: The rows of the file that this is a slice of; None if it has memory of its own.
    """

    episode: int
    length: int
    numbers: dict[str, npt.NDArray[Any]]
    objects: dict[str, pa.Array | pa.ChunkedArray]
    mapped: MappedRows | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in [*self.numbers.values(), *self.objects.values()])

    def object_at(self, key: str, frame: int) -> Any:
        """Return one text, language list or encoded picture as a Python value."""
        return self.objects[key][frame].as_py()


class RowBytes(NamedTuple):
    """Where the rows of an episode lie, as bytes [start, stop).

    Attributes:
        file: The data file, relative to the dataset's root.
        groups: The row groups.
        footer: What is read whenever the file is opened.
        are_shared: Whether the groups are decoded once for all processes, and not read again then.
    """

    file: str
    groups: tuple[int, int]
    footer: tuple[int, int]
    are_shared: bool


class _DataFile(NamedTuple):
    """An open Parquet file, and the row at which each of its row groups ends."""

    parquet: OpenParquet
    ends: npt.NDArray[np.int64]


class RowReader:
    """Reads episodes' rows; for one thread.

    Args:
        dataset: The dataset.
        door: What opens its files.
        keys: The columns to read; the five every dataset has are read too.
        tolerance_s: How far a frame's time may be from frame_index / fps; None for anything.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        door: FileOpener,
        keys: Sequence[str],
        tolerance_s: float | None = None,
    ) -> None:
        meta = dataset.meta
        self._location = dataset.files
        self._door = door
        self._meta = meta
        self._tolerance_s = tolerance_s
        self._keys = [*dict.fromkeys([*keys, *DEFAULT_FEATURES])]
        self._first_rows = _first_rows(meta)
        self._files: LruCache[str, _DataFile] = LruCache(
            _OPEN_FILES, drop=lambda file: file.parquet.close()
        )
        self._has_pictures = any(meta.features[key]["dtype"] == "image" for key in self._keys)
        self._shared = SharedRows(dataset, door, self._keys)
        # A file whose row groups are not episodes is read group by group; neighbours share one.
        self._shared_group: tuple[tuple[str, int, int], pa.Table] | None = None

    def read(self, episode: int, *, maps_images: bool = False) -> EpisodeRows:
        """Return the rows of an episode, checked against meta/; if asked to, without a copy."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        where = self._location.describe(relative)
        table, mapped = self._table(episode, relative, where, maps_images)
        numbers: dict[str, npt.NDArray[Any]] = {}
        objects: dict[str, pa.Array | pa.ChunkedArray] = {}
        place = f"{where}: episode {episode}"
        for key in self._keys:
            dtype, shape = (self._meta.features[key][name] for name in ("dtype", "shape"))
            case = ColumnCase(key, dtype, shape, place)
            if dtype in ("string", "image", "language"):
                with readable_parquet(place):
                    objects[key] = object_column(table.column(key), case, copy=mapped is None)
            else:
                numbers[key] = numeric_column(table.column(key), case)
        rows = EpisodeRows(episode, table.num_rows, numbers, objects, mapped)
        _check_rows(rows, where)
        if self._tolerance_s is not None:
            times, frames = numbers["timestamp"], numbers["frame_index"]
            check_times(times, frames, self._meta.fps, self._tolerance_s, place)
        return rows

    def find(self, episode: int) -> RowBytes:
        """Return where the rows of an episode lie."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        file = self._open(relative, self._location.describe(relative))
        begin, stop, _ = self._groups(file, episode, relative)
        size = self._door.open(relative).size()
        return RowBytes(
            relative,
            groups=file.parquet.byte_span(range(begin, stop)),
            footer=(max(size - _FOOTER_BYTES, 0), size),
            are_shared=self._are_shared(file, episode, range(begin, stop)),
        )

    def close(self) -> None:
        """Close all files."""
        self._files.clear()
        self._shared.close()
        self._shared_group = None

    def _table(
        self, episode: int, relative: str, where: str, maps_images: bool
    ) -> tuple[pa.Table, MappedRows | None]:
        """Return an episode's rows, and what they are a slice of if that is to stay mapped."""
        file = self._open(relative, where)
        begin, stop, offset = self._groups(file, episode, where)
        length = int(self._meta.episodes["length"][episode])
        if self._has_pictures:
            # A file that is far away would have to come whole.
            is_shared = maps_images and not self._location.is_remote
        else:
            is_shared = self._are_shared(file, episode, range(begin, stop))
        if is_shared:
            _check_sizes(file.parquet, range(len(file.ends)), where)
            with readable_parquet(where):
                shared = self._shared.get(relative, int(self._first_rows[episode]), length)
            if shared is not None:
                rows, mapped = shared
                return rows, mapped if self._has_pictures else None
        table = self._read_groups(file.parquet, (relative, begin, stop), where)
        if table.num_rows > length:
            self._shared_group = ((relative, begin, stop), table)
        return table.slice(offset, length), None

    def _are_shared(self, file: _DataFile, episode: int, groups: range) -> bool:
        """Return whether an episode's row groups are so long that they are decoded for all."""
        rows = file.ends[groups.stop - 1] - (file.ends[groups.start - 1] if groups.start else 0)
        return bool(rows > _WORTH_SHARING * int(self._meta.episodes["length"][episode]))

    def _groups(self, file: _DataFile, episode: int, where: str) -> tuple[int, int, int]:
        """Return the row groups [begin, stop) of an episode, and where it begins in them."""
        first_row = int(self._first_rows[episode])
        length = int(self._meta.episodes["length"][episode])
        ends = file.ends
        if len(ends) == 0 or ends[-1] < first_row + length:
            raise DataFileError(
                f"{where}: episode {episode} should be rows [{first_row}, {first_row + length}) of "
                f"the file, which has {ends.max(initial=0)}. It is from another version of the "
                "dataset; copy it again."
            )
        begin = int(np.searchsorted(ends, first_row, side="right"))
        stop = int(np.searchsorted(ends, first_row + length, side="left")) + 1
        return begin, stop, first_row - (int(ends[begin - 1]) if begin else 0)

    def _read_groups(self, file: OpenParquet, groups: tuple[str, int, int], where: str) -> pa.Table:
        if self._shared_group is not None and self._shared_group[0] == groups:
            return self._shared_group[1]
        numbers = range(*groups[1:])
        _check_sizes(file, numbers, where)
        if self._location.is_remote:
            self._door.open(groups[0]).ensure_cached(*file.byte_span(numbers))
        with readable_parquet(where):
            return file.read_row_groups(numbers, self._keys)

    def _open(self, relative: str, where: str) -> _DataFile:
        held = self._files.get(relative)
        if held is not None:
            return held
        # Far away, the columns of a row group are read together: fewer requests.
        is_remote = self._location.is_remote
        file = open_parquet(self._door.open(relative), columns_together=is_remote)
        _check_columns(file, self._keys, self._meta, where)
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        return self._files.put(relative, _DataFile(file, np.cumsum(counts, dtype=np.int64)))


def _check_sizes(file: OpenParquet, groups: range, where: str) -> None:
    for group in groups:
        size = file.metadata.row_group(group).total_byte_size
        if size > config.MOST_ROW_GROUP_BYTES:
            raise DataFileError(
                f"{where}: row group {group} says it has {size:,} bytes; want at most "
                f"{config.MOST_ROW_GROUP_BYTES:,}. Write the file with smaller row groups."
            )


def _first_rows(meta: LeRobotDatasetMetadata) -> npt.NDArray[np.int64]:
    """Return the row at which each episode starts in its file."""
    table = meta.episodes
    chunk, file = table["data/chunk_index"], table["data/file_index"]
    new_file = np.ones(len(table), dtype=bool)
    new_file[1:] = (chunk[1:] != chunk[:-1]) | (file[1:] != file[:-1])
    # Episodes of a file are neighbours in the table: count from the last place a file began.
    first = np.maximum.accumulate(np.where(new_file, np.arange(len(table)), 0))
    start: npt.NDArray[np.int64] = table["dataset_from_index"]
    return start - start[first]


def _check_columns(
    file: OpenParquet, keys: Sequence[str], meta: LeRobotDatasetMetadata, where: str
) -> None:
    names = file.schema_arrow.names
    present = set(names)
    missing = [key for key in keys if key not in present]
    if missing:
        raise DataFileError(
            f"{where}: the columns {', '.join(missing)} that info.json declares are missing; found "
            f"{', '.join(sorted(present))}. The file is from another version of the dataset."
        )
    doubled = [key for key in keys if names.count(key) > 1]
    if doubled:
        raise DataFileError(
            f"{where}: there are several columns {', '.join(doubled)}; want one of each name. "
            "Write the file again without the others."
        )
    undeclared = [key for key in LANGUAGE_KEYS if key in present and key not in meta.features]
    if undeclared:
        raise DataFileError(
            f"{where}: the language columns {', '.join(undeclared)} are in the file but not "
            "declared in info.json. Declare them there with dtype 'language' and shape [1]."
        )


def _check_rows(rows: EpisodeRows, where: str) -> None:
    episodes, frames = rows.numbers["episode_index"], rows.numbers["frame_index"]
    if not (episodes == rows.episode).all() or not np.array_equal(frames, np.arange(rows.length)):
        raise DataFileError(
            f"{where}: the rows that meta/ gives to episode {rows.episode} hold episodes "
            f"{np.unique(episodes).tolist()} and frames {frames.min()} to {frames.max()}; want "
            f"frames 0 to {rows.length - 1} of it in order. The file and meta/ do not match."
        )
    times_s = rows.numbers["timestamp"]
    if not np.isfinite(times_s).all():
        wrong = int(np.argmin(np.isfinite(times_s)))
        raise DataFileError(
            f"{where}: episode {rows.episode}, frame {wrong}: timestamp is {times_s[wrong]}; want "
            "seconds since the episode began. Copy the file again."
        )
