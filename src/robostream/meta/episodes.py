# SPDX-License-Identifier: Apache-2.0
"""The episode table: one row per episode, in columns."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from robostream import config
from robostream.errors import DataFileError, MetadataError, MissingFileError, NoListingError
from robostream.meta.decoded_size import DecodeBudget
from robostream.meta.parquet import OpenParquet, cache_table, check_unique, readable_parquet
from robostream.storage import FileOpener, Location

_FOLDER = "meta/episodes"
_SKIPPED = "stats/"  # by far the widest columns, never read per episode
_REQUIRED = (
    "episode_index",
    "length",
    "data/chunk_index",
    "data/file_index",
    "dataset_from_index",
    "dataset_to_index",
)
_VIDEO_COLUMNS = ("chunk_index", "file_index", "from_timestamp", "to_timestamp")
# File and chunk numbers fit 32 bits; a million episodes have two of them per camera.
_SMALL = ("/chunk_index", "/file_index")
_FILE = re.compile(r"chunk-(\d+)/file-(\d+)\.parquet$")

# A smaller remote file is fetched whole, with one request.
_LARGE_BYTES = 4 * 1024**2

Column = npt.NDArray[Any]
NamedTable = tuple[str, pa.Table]  # with the name of its file
_noted: ContextVar[list[MetadataError] | None] = ContextVar("noted", default=None)


class EpisodeTable(Sequence[dict[str, Any]]):
    """All episodes of a dataset, in order: `table["length"]` is a column, `table[3]` a row.

    Numbers are numpy arrays. Task texts stay in Arrow, where a million lists take megabytes; as
    Python objects they would take gigabytes.
    """

    def __init__(self, numbers: Mapping[str, Column], texts: Mapping[str, pa.Array]) -> None:
        self._numbers = dict(numbers)
        self._texts = dict(texts)

    @property
    def columns(self) -> list[str]:
        """The names of all columns."""
        return [*self._numbers, *self._texts]

    @property
    def nbytes(self) -> int:
        """The bytes the columns hold."""
        return sum(c.nbytes for c in [*self._numbers.values(), *self._texts.values()])

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[dict[str, Any]]: ...
    def __getitem__(self, key: str | int | slice) -> Any:
        if isinstance(key, str):
            if key in self._numbers:
                return self._numbers[key]
            if key in self._texts:
                return self._texts[key].to_pylist()
            raise KeyError(f"the episode table has no column {key!r}; it has {self.columns}")
        if isinstance(key, slice):
            return [self[i] for i in range(*key.indices(len(self)))]
        if not -len(self) <= key < len(self):
            raise IndexError(f"episode {key} of {len(self)}")
        row = {name: column[key].item() for name, column in self._numbers.items()}
        number = key % len(self)
        return row | {name: column[number].as_py() for name, column in self._texts.items()}

    def __len__(self) -> int:
        return len(self._numbers["episode_index"])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        return f"EpisodeTable({len(self)} episodes, columns {self.columns})"

    def digest(self) -> str:
        """Return a digest of every number and text."""
        total = hashlib.blake2b(digest_size=16)
        for name in sorted(self._numbers):
            column = self._numbers[name]
            wide = column.astype("<f8" if column.dtype.kind == "f" else "<i8", copy=False)
            total.update(name.encode() + b"\0")
            total.update(wide.tobytes())
        for name in sorted(self._texts):
            total.update(name.encode() + b"\0")
            of_column = hashlib.blake2b(digest_size=16)
            _digest_into(of_column, self._texts[name])
            total.update(of_column.digest())
        return total.hexdigest()


def empty_episodes() -> EpisodeTable:
    """Return the table of a dataset with no episode yet."""
    return EpisodeTable({name: np.empty(0, np.int64) for name in _REQUIRED}, {})


def load_episodes(opener: FileOpener, video_keys: Sequence[str], count: int) -> EpisodeTable:
    """Return the checked table of all files of meta/episodes, without statistics.

    The columns of `video_keys` must be there. Remote files are read by their usual names until they
    have the `count` of episodes; the folder is listed only if those files are too few.
    """
    read = functools.partial(_read_file, opener, video_keys, DecodeBudget())
    parts = list(_read_usual_files(read, count)) if opener.location.is_remote else []
    if sum(part.num_rows for _, part in parts) < count:
        known = dict(parts)
        with suppress(NoListingError):
            files = sorted(opener.list_files(_FOLDER, ".parquet"), key=_file_order)
            names = [opener.location.describe(file) for file in files]
            parts = [
                (name, known[name]) if name in known else read(file)
                for name, file in zip(names, files, strict=True)
            ]
    if not parts:
        raise MetadataError(
            f"{opener.location.describe(_FOLDER)}: no episode table found, though info.json counts "
            "episodes. Copy the whole meta/ folder, or run finalize() on the recording."
        )
    with readable_parquet(opener.location.describe(_FOLDER)):
        return _check(_to_columns(_join(parts)), opener.location)


def _read_usual_files(read: Callable[[str], NamedTable], count: int) -> Iterator[NamedTable]:
    """Yield the files by their usual names, until they have `count` rows or one is missing."""
    for chunk in itertools.count():
        for number in itertools.count():
            file = config.EPISODES_PATH.format(chunk_index=chunk, file_index=number)
            try:
                found = read(file)
            except DataFileError as error:
                if not isinstance(error.__cause__, MissingFileError):
                    raise
                if number == 0:
                    return
                break
            yield found
            count -= found[1].num_rows
            if count <= 0:
                return


def _file_order(path: str) -> tuple[int, int, str]:
    # By number: chunk-1000 follows chunk-999, though its name sorts before.
    match = _FILE.search(path)
    return (int(match[1]), int(match[2]), "") if match else (-1, -1, path)


def _join(parts: Sequence[NamedTable]) -> pa.Table:
    """Return all files as one table of the first one's columns, in types that hold all values."""
    where, first = parts[0]
    names = first.column_names
    schema, tables = first.schema, [first]
    try:
        for where, part in parts[1:]:  # noqa: B007  # the error below names the file
            tables.append(part.select([name for name in names if name in part.column_names]))
            schema = pa.unify_schemas([schema, tables[-1].schema], promote_options="permissive")
        return pa.concat_tables(tables, promote_options="permissive")
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise MetadataError(
            f"{where}: want columns of the types they have in the files before it, found others "
            f"({error}). Write the file again in those types, or without such a column."
        ) from error


def _read_file(
    opener: FileOpener, video_keys: Sequence[str], budget: DecodeBudget, relative: str
) -> NamedTable:
    source = opener.open(relative)
    where = source.name
    with readable_parquet(where):
        is_large = opener.location.is_remote and source.size() > _LARGE_BYTES
    read = functools.partial(_read_columns, opener, relative, budget, is_lean=is_large)
    cache = opener.cache if is_large and source.version() else None
    table = read() if cache is None else cache_table(cache, source, read)
    wanted = [*_REQUIRED, *(f"videos/{k}/{c}" for k in video_keys for c in _VIDEO_COLUMNS)]
    missing = [name for name in wanted if name not in table.column_names]
    if missing:
        raise MetadataError(
            f"{where}: the columns {', '.join(missing)} are missing. The file was not written "
            "by a v3.0 recorder, or info.json names cameras that were never recorded."
        )
    for name in wanted:
        at = table.column_names.index(name)
        table = table.set_column(at, name, _as_numbers(table.column(name), name, where))
    return where, table


def _read_columns(
    opener: FileOpener, relative: str, budget: DecodeBudget, *, is_lean: bool
) -> pa.Table:
    """Return a file of the table without statistics; of a large remote one, fetch only that."""
    # LeRobot's recorder writes ten episodes at a time, with statistics between other columns.
    source = opener.open_remote(relative) if is_lean else opener.open(relative)
    at_once = opener.location.is_remote and not is_lean
    with OpenParquet(source, at_once=at_once, is_lean=is_lean) as file:
        names = [n for n in file.schema_arrow.names if not n.startswith(_SKIPPED)]
        check_unique(names, source.name)
        with readable_parquet(source.name):
            return file.read(sorted(names), budget)


def _as_numbers(column: pa.ChunkedArray, name: str, where: str) -> pa.ChunkedArray:
    """Return a checked column of seconds (if so named), or else of whole numbers."""
    import pyarrow.compute as pc  # on demand: workers start a tenth faster without it

    is_time = name.endswith("_timestamp")
    if not _is_numeric(column.type):
        fault = f"the type {column.type}"
    elif column.null_count:
        fault = f"{column.null_count} rows without a value"
    elif is_time:
        if pc.all(pc.is_finite(column), min_count=0).as_py():
            return column
        fault = "a value that is NaN or infinite"
    else:
        small = name.endswith(_SMALL)
        try:  # unsigned first, which refuses negative numbers
            whole = column.cast(pa.uint32() if small else pa.uint64())
            whole = whole.cast(pa.int32() if small else pa.int64())
        except pa.ArrowInvalid as error:
            fault = str(error)
        else:  # floats stay floats, which keeps the fingerprint
            return column if pa.types.is_floating(column.type) and not small else whole
    raise MetadataError(
        f"{where}: want {'seconds' if is_time else 'whole numbers from 0'} in the column {name}, "
        f"found {fault}. Restore the file from a copy, or write the column again."
    )


def _is_numeric(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _to_columns(table: pa.Table) -> EpisodeTable:
    numbers: dict[str, Column] = {}
    texts: dict[str, pa.Array] = {}
    for name in table.column_names:
        column = table.column(name)
        if _is_numeric(column.type):
            if name.endswith(_SMALL) and not column.null_count:
                with suppress(pa.ArrowInvalid):  # an optional column
                    column = column.cast(pa.int32())
            numbers[name] = column.to_numpy()
        else:
            texts[name] = column.combine_chunks()
    return EpisodeTable(numbers, texts)


def _check(table: EpisodeTable, location: Location) -> EpisodeTable:
    where = location.describe(_FOLDER)
    order = table["episode_index"]
    if not np.array_equal(order, np.arange(len(table))):
        wrong = int(np.argmax(order != np.arange(len(table))))
        raise MetadataError(
            f"{where}: row {wrong} holds episode {order[wrong]}; want one row per episode, "
            "numbered from 0. A file of the table is missing or was written twice."
        )
    start, stop, length = table["dataset_from_index"], table["dataset_to_index"], table["length"]
    bad = (stop - start != length) | (length <= 0)
    bad |= start != np.append(0, stop[:-1])
    if bad.any():
        wrong = int(np.argmax(bad))
        error = MetadataError(
            f"{where}: episode {wrong} has length {length[wrong]} and frames [{start[wrong]}, "
            f"{stop[wrong]}); want the frames to match the length and to follow those of the "
            "episode before; the first begins at 0. The table is damaged."
        )
        if (length <= 0).any():
            raise error
        report_contradiction(error)
    return table


def _digest_into(total: hashlib.blake2b, column: pa.Array) -> None:
    # The buffers of an Arrow array depend on its slicing, so digest lengths and codes instead.
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_map(column.type):
        pairs = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(pairs))
    if pa.types.is_struct(column.type):
        total.update(column.is_valid().to_numpy(zero_copy_only=False).tobytes())
        for field in column.flatten():
            _digest_into(total, field)
    elif hasattr(column, "flatten"):
        import pyarrow.compute as pc

        _digest_numbers(total, pc.list_value_length(column))
        _digest_into(total, column.flatten())
    else:
        if pa.types.is_temporal(column.type):
            column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
        codes = column.dictionary_encode()
        _digest_numbers(total, codes.indices)
        total.update(json.dumps(codes.dictionary.to_pylist(), default=str).encode())


def _digest_numbers(total: hashlib.blake2b, numbers: pa.Array) -> None:
    total.update(numbers.fill_null(-1).to_numpy().astype("<i8").tobytes())


@contextmanager
def noting_contradictions() -> Iterator[list[MetadataError]]:
    """Yield a list that collects the contradictions found in the block; none of them is raised."""
    errors: list[MetadataError] = []
    token = _noted.set(errors)
    try:
        yield errors
    finally:
        _noted.reset(token)


def report_contradiction(error: MetadataError) -> None:
    """Raise the error, unless contradictions are noted."""
    noted = _noted.get()
    if noted is None:
        raise error
    noted.append(error)
