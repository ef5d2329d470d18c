# SPDX-License-Identifier: Apache-2.0
"""Rows of one episode, read from the row groups that hold it and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from robostream.assemble.columns import ColumnCase, numeric_column, object_column
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.times import check_times
from robostream.errors import DataFileError
from robostream.meta import (
    DEFAULT_FEATURES,
    LANGUAGE_KEYS,
    LeRobotDatasetMetadata,
    open_parquet,
    readable_parquet,
)
from robostream.storage import Recent

_OPEN_FILES = 16  # open Parquet files kept per reader; each holds a footer, not data


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
        dataset: The dataset.
        keys: The columns to read; the five every dataset has are read too.
        tolerance_s: How far a frame's time may be from frame_index / fps; None for anything.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        keys: Sequence[str],
        tolerance_s: float | None = None,
    ) -> None:
        meta = dataset.meta
        self._dataset = dataset
        self._meta = meta
        self._tolerance_s = tolerance_s
        self._keys = [*dict.fromkeys([*keys, *DEFAULT_FEATURES])]
        self._first_rows = _first_rows(meta)
        self._files: Recent[str, pq.ParquetFile] = Recent(
            _OPEN_FILES, drop=lambda file: file.close()
        )
        # A file whose row groups are not episodes is read group by group; neighbours share one.
        self._shared_group: tuple[tuple[str, int, int], pa.Table] | None = None

    def read(self, episode: int) -> EpisodeRows:
        """Return the rows of an episode, checked against meta/."""
        relative = self._meta.get_data_file_path(episode).as_posix()
        where = self._dataset.files.describe(relative)
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
        self._files.clear()
        self._shared_group = None

    def __reduce__(self) -> tuple[Any, ...]:
        return RowReader, (self._dataset, self._keys, self._tolerance_s)

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
        held = self._files.get(relative)
        if held is not None:
            return held
        # Far away, the columns of a row group are read together: fewer requests.
        is_far = self._dataset.files.local_root is None
        file = open_parquet(self._dataset.open_file(relative), pre_buffer=is_far)
        _check_columns(file, self._keys, self._meta, where)
        return self._files.put(relative, file)


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
