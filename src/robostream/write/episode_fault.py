# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a saved episode, so that it could not become part of the dataset."""

from __future__ import annotations

from pathlib import Path

import av
import pyarrow as pa

from robostream.errors import WriteError
from robostream.meta import DatasetInfo
from robostream.write.encoder import frame_rate
from robostream.write.jobs import DATA, all_jobs, part_path
from robostream.write.join_data import read_rows
from robostream.write.join_video import iter_packets
from robostream.write.staging import StagedEpisode, StagingFolder, read_record
from robostream.write.text_input import text_fault


def episode_fault(number: int, staging: StagingFolder, info: DatasetInfo) -> str | None:
    """Return what is wrong with a saved episode, or None if it is whole.

    Rows and videos that are joined with those of other episodes already were whole, so they are not
    read again. A disk that cannot be read is not a fault of the episode: that raises an OSError.
    """
    try:
        record = read_record(staging.episode(number))
    except WriteError as error:
        return str(error)
    for task in record.tasks:
        if fault := text_fault(task):
            return f"task: {fault}"
    if set(record.videos) != set(info.video_keys):
        return f"want a video of each of {info.video_keys}, found {list(record.videos)}"
    for job in all_jobs([record]):
        if (staging.ready / job.relative_path(info)).exists():
            continue
        path = part_path(staging, record, job.stream)
        if fault := _part_fault(path, record, info, rows=job.stream == DATA):
            return f"{path.name}: {fault}"
    return None


def _part_fault(path: Path, record: StagedEpisode, info: DatasetInfo, *, rows: bool) -> str | None:
    if not path.exists():
        return "the file is missing"
    return _rows_fault(path, record) if rows else _video_fault(path, record, info)


def _rows_fault(path: Path, record: StagedEpisode) -> str | None:
    try:
        table = read_rows(path)
        tasks = len(table["task_index"].unique())
    except (KeyError, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"not a whole Parquet file: {error}"
    if table.num_rows != record.num_frames:
        return f"want {record.num_frames} rows, found {table.num_rows}"
    if tasks != len(record.tasks):
        return f"want {len(record.tasks)} tasks in the rows, found {tasks}"
    return None


def _video_fault(path: Path, record: StagedEpisode, info: DatasetInfo) -> str | None:
    try:
        found = sum(1 for _ in iter_packets(path, frame_rate(info.fps)))
    except (av.InvalidDataError, av.EOFError, IndexError, WriteError) as error:
        return f"not a whole MP4: {error}"
    if found != record.num_frames:
        return f"want {record.num_frames} frames, found {found}"
    return None
