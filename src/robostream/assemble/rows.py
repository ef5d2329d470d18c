# SPDX-License-Identifier: Apache-2.0
"""Rows of one episode, read from the row groups that hold it and nothing else."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.assemble.columns import ColumnCase, numeric_column, object_column
from robostream.assemble.shared_rows import SharedRows
from robostream.assemble.times import check_times
from robostream.errors import DataFileError
from robostream.meta import (
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    LeRobotDatasetMetadata,
    open_parquet,
    readable_parquet,
)

_OPEN_FILES = 16  # open Parquet files kept per reader; each holds a footer, not data
# Row groups this many times as long as the episode are decoded once for the whole machine.
_WORTH_SHARING = 2


@dataclass(frozen=True, slots=True)
class EpisodeRows:
    """The rows of one episode as arrays; texts and encoded pictures stay in Arrow."""

    episode: int
    length: int
    numbers: dict[str, npt.NDArray[Any]]
    objects: dict[str, pa.Array]

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(a.nbytes for a in [*self.numbers.values(), *self.objects.values()])

    def object_at(self, key: str, frame: int) -> Any:
        """Return one text, language list or encoded picture as a Python value."""
        return self.objects[key][frame].as_py()


class RowReader:
    """Reads episodes' rows; not thread-safe, pickles without its open files.

    Args:
        meta: The dataset.
        keys: The columns to read; the five every dataset has are read too.
        tolerance_s: How far a frame's time may be from frame_index / fps; None for anything.
    """

    def __init__(
        self,
        meta: LeRobotDatasetMetadata,
        keys: Sequence[str],
        tolerance_s: float | None = None,
    ) -> None:
        self._meta = meta
        self._tolerance_s = tolerance_s
        self._keys = [*dict.fromkeys([*keys, *DEFAULT_FEATURES])]
        self._first_rows = _first_rows(meta)
        self._files: OrderedDict[str, pq.ParquetFile] = OrderedDict()
        self._shared = SharedRows(meta, self._keys)
        # A file whose row groups are not episodes is read group by group; neighbours share one.
        self._shared_group: tuple[tuple[str, int, int], pa.Table] | None = None

    def read(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode, checked against meta/."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        where = self._meta.location.describe(relative)
        table = self._table(episode, relative, where)
        numbers: dict[str, npt.NDArray[Any]] = {}
        objects: dict[str, pa.Array] = {}
        place = f"{where}: episode {episode}"
        for key in self._keys:
            dtype, shape = (self._meta.features[key][name] for name in ("dtype", "shape"))
            case = ColumnCase(key, dtype, shape, place)
            if dtype in ("string", "image", "language"):
                objects[key] = object_column(table.column(key), case)
            else:
                numbers[key] = numeric_column(table.column(key), case)
        rows = EpisodeRows(episode, table.num_rows, numbers, objects)
        _check_rows(rows, where)
        if self._tolerance_s is not None:
            times, frames = numbers["timestamp"], numbers["frame_index"]
            check_times(times, frames, self._meta.fps, self._tolerance_s, place)
        return rows

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._shared.close()
        self._shared_group = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_files": OrderedDict(), "_shared_group": None}

    def _table(self, episode: int, relative: str, where: str) -> pa.Table:
        file = self._open(relative, where)
        first_row = int(self._first_rows[episode])
        length = int(self._meta.episodes["length"][episode])
        counts = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        ends = np.cumsum(counts)
        if len(ends) == 0 or ends[-1] < first_row + length:
            raise DataFileError(
                f"{where}: episode {episode} should be rows [{first_row}, {first_row + length}) of "
                f"the file, which has {sum(counts)}. It is from another version of the dataset; "
                "copy it again."
            )
        begin = int(np.searchsorted(ends, first_row, side="right"))
        stop = int(np.searchsorted(ends, first_row + length, side="left")) + 1
        offset = first_row - (int(ends[begin - 1]) if begin else 0)
        if sum(counts[begin:stop]) > _WORTH_SHARING * length:
            with readable_parquet(where):
                shared = self._shared.table(relative)
            if shared is not None:
                return shared.slice(first_row, length)
        table = self._read_groups(file, (relative, begin, stop), where)
        if table.num_rows > length:
            self._shared_group = ((relative, begin, stop), table)
        return table.slice(offset, length)

    def _read_groups(
        self, file: pq.ParquetFile, groups: tuple[str, int, int], where: str
    ) -> pa.Table:
        if self._shared_group is not None and self._shared_group[0] == groups:
            return self._shared_group[1]
        with readable_parquet(where):
            return file.read_row_groups(list(range(*groups[1:])), columns=self._keys)

    def _open(self, relative: str, where: str) -> pq.ParquetFile:
        if relative in self._files:
            self._files.move_to_end(relative)
            return self._files[relative]
        location = self._meta.location
        local = location.local_root
        if local is not None:
            file = open_parquet(str(local / relative), where, pre_buffer=False)
        else:
            fs, path = location.filesystem()
            with readable_parquet(where):
                handle = fs.open(f"{path}/{relative}", "rb", cache_type="readahead")
            file = open_parquet(handle, where)
        _check_columns(file, self._keys, self._meta, where)
        self._files[relative] = file
        if len(self._files) > _OPEN_FILES:
            self._files.popitem(last=False)[1].close()
        return file


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
    file: pq.ParquetFile, keys: Sequence[str], meta: LeRobotDatasetMetadata, where: str
) -> None:
    present = set(file.schema_arrow.names)
    missing = [key for key in keys if key not in present]
    if missing:
        raise DataFileError(
            f"{where}: the columns {', '.join(missing)} that info.json declares are missing; found "
            f"{', '.join(sorted(present))}. The file is from another version of the dataset."
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
