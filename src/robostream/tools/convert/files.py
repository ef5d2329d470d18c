# SPDX-License-Identifier: Apache-2.0
"""A file of the copy: joined from files of episodes, and compared with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from robostream.decode import build_index
from robostream.errors import DataFileError, RobostreamError, WriteError
from robostream.meta import DatasetInfo
from robostream.storage import LocalSource
from robostream.tools.convert.sources import is_regular, stored_schema
from robostream.tools.staging import new_file
from robostream.write import JoinJob, VideoPart, read_rows, row_schema

logger = logging.getLogger(__name__)

Bytes = npt.NDArray[np.uint8]

# Integers as wide as the floating-point numbers, whose bits they are compared by.
_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def make_file(
    staging: Path, info: DatasetInfo, job: JoinJob, on_frames: Callable[[int], object]
) -> bool:
    """Make the file of a job, and return whether an earlier run had made it.

    It has its name once it was compared. A file of an earlier run is compared again: its source
    may have changed.

    Raises:
        WriteError: The file differs from its parts, or cannot be written.
        DataFileError: The rows of a part are damaged.
    """
    target = staging / job.path
    is_kept = target.exists() and _is_current(job, info, target)
    if not is_kept:
        with new_file(target) as part:
            _join(job, info, part)
            _compare(job, info, part)
    on_frames(job.num_frames)
    return is_kept


def _is_current(job: JoinJob, info: DatasetInfo, target: Path) -> bool:
    try:
        _compare(job, info, target)
    except (RobostreamError, pa.ArrowException, OSError) as error:
        logger.warning("%s is made again, because the source has changed: %s", target, error)
        return False
    return True


def _join(job: JoinJob, info: DatasetInfo, target: Path) -> None:
    described = row_schema(info.features)
    first, last = job.parts[0].path, job.parts[-1].path
    schema = None
    if job.camera is None:
        schema = stored_schema(first, described.names).with_metadata(described.metadata)
    try:
        job.make(target, schema)
    except pa.ArrowException as error:
        raise DataFileError(
            f"a file from {first} to {last} cannot be read: {error}. Copy them again."
        ) from error


def _compare(job: JoinJob, info: DatasetInfo, target: Path) -> None:
    """Raise WriteError unless a file holds the parts of a job, and nothing else."""
    if job.camera is None:
        _compare_rows(job, info, target)
    else:
        compare_videos(job.parts, target, job.rate)


def _compare_rows(job: JoinJob, info: DatasetInfo, target: Path) -> None:
    names = row_schema(info.features).names
    with pq.ParquetFile(target, page_checksum_verification=True) as joined:
        if joined.num_row_groups != len(job.parts):
            raise _differ(target, f"{len(job.parts)} row groups")
        for number, part in enumerate(job.parts):
            want, found = read_rows(part.path).select(names), joined.read_row_group(number)
            _check_images(want, info, part.path)
            if not has_equal_bits(want, found):
                raise _differ(target, f"the rows of {part.path} in row group {number}")


def _check_images(rows: pa.Table, info: DatasetInfo, path: Path) -> None:
    for key in info.image_keys:
        missing = pc.struct_field(rows.column(key), "bytes").null_count
        if missing:
            raise DataFileError(
                f"{path}: want the encoded image in each row of {key}, found {missing} rows with "
                "at most its path. Write the images into the rows."
            )


def has_equal_bits(want: pa.Table, found: pa.Table) -> bool:
    """Return whether two tables have equal values; NaN equals NaN if its bits do."""
    return want.equals(found) or bool(_as_bits(want).equals(_as_bits(found)))


def _as_bits(table: pa.Table) -> pa.Table:
    return pa.table(
        [
            column.combine_chunks().view(_bits_type(column.type)) if column.num_chunks else column
            for column in table.columns
        ],
        table.column_names,
    )


def _bits_type(kind: pa.DataType) -> pa.DataType:
    """Return a type with integers for floating-point numbers, at any depth. Pure."""
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_bits_type(kind.value_type), kind.list_size)
    if pa.types.is_list(kind):
        return pa.list_(_bits_type(kind.value_type))
    if pa.types.is_large_list(kind):
        return pa.large_list(_bits_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bits_type(field.type)) for field in kind])
    return _BITS.get(kind, kind)


def compare_videos(parts: Sequence[VideoPart], target: Path, rate: Fraction) -> None:
    """Raise WriteError unless each packet of the parts is in the file, at its time.

    The parts were inspected: frame k of each is shown at k / rate.
    """
    joined = build_index(LocalSource(target))
    num_frames = sum(part.num_frames for part in parts)
    if joined.num_frames != num_frames or not is_regular(joined, rate):
        raise _differ(target, f"{num_frames} frames, frame k at k / {float(rate):g} s")
    made = np.memmap(target, np.uint8, "r")
    for part in parts:
        source = build_index(LocalSource(part.path))
        first, stop = part.start_frame, part.start_frame + part.num_frames
        if source.configs != joined.configs:
            raise _differ(target, f"the codec configuration of {part.path}")
        own = joined.byte_offsets[first:stop], joined.sizes[first:stop]
        theirs = source.byte_offsets, source.sizes
        order = [first + frame for frame in source.frames_of(0, part.num_frames)]
        if joined.frames_of(first, stop) != order:
            raise _differ(target, f"the frames of {part.path} in their order")
        if not _equal_packets(made, own, np.memmap(part.path, np.uint8, "r"), theirs):
            raise _differ(target, f"the packets of {part.path}")


def _equal_packets(one: Bytes, own: tuple[Any, Any], other: Bytes, theirs: tuple[Any, Any]) -> bool:
    """Return whether two files hold equal bytes at their (offsets, sizes)."""
    if not np.array_equal(own[1], theirs[1]):
        return False
    places = zip(own[0].tolist(), theirs[0].tolist(), own[1].tolist(), strict=True)
    return all(np.array_equal(one[a : a + size], other[b : b + size]) for a, b, size in places)


def _differ(target: Path, want: str) -> WriteError:
    return WriteError(
        f"{target.name.removesuffix('.part')}: want {want}, found something else after joining. "
        "The file is not kept; please report this with the output of robostream env."
    )
