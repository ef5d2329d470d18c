# SPDX-License-Identifier: Apache-2.0
"""Excludes damaged saved episodes, so that the others can be published.

A damaged episode is marked in its folder, and the episodes after it get new numbers. Once the
others are in the dataset, `publish` moves its folder to `.bad-episodes/`; it is never deleted. If
the process is killed at any point, the next resume continues from there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import pyarrow as pa

from robostream.errors import WriteError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata, as_lists, column_stats
from robostream.write.frames import text_fault
from robostream.write.join import iter_packets, plan_joins, saved_part, undo_join
from robostream.write.rows import read_rows, write_rows
from robostream.write.saved_episodes import (
    CameraInfo,
    FilePlace,
    StagedEpisode,
    add_tasks,
    counter_columns,
    load_staged,
    mark_damaged,
    read_damage,
    read_record,
    replace_record,
)
from robostream.write.staging import StagingFolder, move_durably, part_path


def exclude_damaged(staging: StagingFolder) -> None:
    """Mark the damaged saved episodes, and number the others as if those did not exist."""
    folders = staging.episodes()
    if not folders:
        return
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    records = {number: _read_record(folder) for number, folder in folders.items()}
    marked = {n for n, folder in folders.items() if read_damage(folder) is not None}
    found = {
        number: damage
        for number, record in records.items()
        if number not in marked and (damage := find_damage(record, staging, meta.info))
    }
    if found:
        unmarked = {folders[n]: record for n, record in records.items() if n not in marked}
        _undo_joins(staging, meta.info, unmarked, damaged=set(found))
    for number, damage in found.items():
        mark_damaged(folders[number], damage)
    if damaged := sorted(marked | set(found)):
        # Facts about cameras that the other episodes may not repeat.
        known: CameraInfo = {}
        for record in (records[number] for number in damaged):
            infos = record.camera_info if isinstance(record, StagedEpisode) else {}
            for key, entry in infos.items():
                known[key] = {**known.get(key, {}), **entry}
        _renumber(staging, meta, known)


def find_damage(
    record: StagedEpisode | str, staging: StagingFolder, info: DatasetInfo
) -> str | None:
    """Return what is wrong with a saved episode, or None if it is complete.

    A text in place of the record is returned. Rows and videos that are already joined were complete
    then and are not read again. Raises OSError if the disk cannot be read, which says nothing about
    the episode.
    """
    if isinstance(record, str):
        return record
    for task in record.tasks:
        if fault := text_fault(task):
            return f"task: {fault}"
    if set(record.videos) != set(info.video_keys):
        return f"want a video of each of {info.video_keys}, found {list(record.videos)}"
    for job in plan_joins([record], info, partial(saved_part, staging)):
        if (staging.ready / job.path).exists():
            continue
        path = job.parts[0].path
        if not path.exists():
            return f"{path.name}: the file is missing"
        is_rows = job.camera is None
        damage = _rows_damage(path, record) if is_rows else _video_damage(path, record, job.rate)
        if damage is not None:
            return f"{path.name}: {damage}"
    return None


def _read_record(folder: Path) -> StagedEpisode | str:
    try:
        return read_record(folder)
    except WriteError as error:
        return str(error)


def _rows_damage(path: Path, record: StagedEpisode) -> str | None:
    try:
        table = read_rows(path)
        num_tasks = len(table["task_index"].unique())
    except (KeyError, pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"not a complete Parquet file: {error}"
    if table.num_rows != record.num_frames:
        return f"want {record.num_frames} rows, found {table.num_rows}"
    if num_tasks != len(record.tasks):
        return f"want {len(record.tasks)} tasks in the rows, found {num_tasks}"
    return None


def _video_damage(path: Path, record: StagedEpisode, rate: Fraction) -> str | None:
    try:
        num_frames = sum(1 for _ in iter_packets(path, rate))
    except (av.InvalidDataError, av.EOFError, IndexError, WriteError) as error:
        return f"not a complete MP4: {error}"
    if num_frames != record.num_frames:
        return f"want {record.num_frames} frames, found {num_frames}"
    return None


def _undo_joins(
    staging: StagingFolder,
    info: DatasetInfo,
    records: Mapping[Path, StagedEpisode | str],
    *,
    damaged: set[int],
) -> None:
    """Split joined files that contain a damaged episode, or rows that will get new numbers."""
    for folder, record in records.items():
        parts = (part_path(folder, key) for key in (None, *info.video_keys))
        if (
            isinstance(record, str)
            and staging.ready.exists()
            and not all(p.exists() for p in parts)
        ):
            raise WriteError(
                f"{folder}: its episode.json cannot be read, and the episode's rows or videos are "
                "already joined with those of other episodes, so they cannot be separated. Bring "
                "episode.json back from a copy, then resume again."
            )
    readable = [record for record in records.values() if not isinstance(record, str)]
    for job in plan_joins(readable, info, partial(saved_part, staging)):
        is_renumbered = job.camera is None and max(job.episodes) >= min(damaged)
        if (staging.ready / job.path).exists() and (
            is_renumbered or not damaged.isdisjoint(job.episodes)
        ):
            undo_join(job, staging)


def _renumber(staging: StagingFolder, meta: LeRobotDatasetMetadata, known: CameraInfo) -> None:
    """Continue the dataset's numbers without a gap in the saved episodes' rows and records.

    Rows of episodes whose number changes must not be joined. Each episode's rows are replaced
    before its record. If the process is killed in between, the record has the old number, and the
    next call writes the same rows again.
    """
    tasks, start_frame = list(meta.tasks), meta.total_frames
    filled: defaultdict[tuple[str, FilePlace], int] = defaultdict(int)
    saved = load_staged(staging, first=meta.total_episodes)
    for number, old in enumerate(saved, start=meta.total_episodes):
        videos = {}
        for key, video in old.videos.items():
            videos[key] = replace(video, start_frame=filled[key, video.place])
            filled[key, video.place] += old.num_frames
        new = replace(old, episode_index=number, start_frame=start_frame, videos=videos)
        start_frame += old.num_frames
        tasks = add_tasks(tasks, old.tasks)
        if number == old.episode_index:
            continue
        counters = _rewrite_counters(staging, new, tasks)
        stats = {name: as_lists(column_stats(values)) for name, values in counters.items()}
        infos = {
            key: {**known.get(key, {}), **new.camera_info.get(key, {})}
            for key in {**known, **new.camera_info}
        }
        record = replace(new, stats={**new.stats, **stats}, camera_info=infos)
        replace_record(staging.episode(new.saved_as), record)


def _rewrite_counters(
    staging: StagingFolder, episode: StagedEpisode, tasks: Sequence[str]
) -> Mapping[str, Any]:
    """Replace the columns of an episode's rows that depend on its number, and return them."""
    path = part_path(staging.episode(episode.saved_as), None)
    table = read_rows(path)
    old_numbers = table["task_index"].to_pylist()
    # The record lists the episode's tasks in the order in which they appear in its rows.
    text_of = dict(zip(dict.fromkeys(old_numbers), episode.tasks, strict=True))
    counters = counter_columns(
        [text_of[number] for number in old_numbers],
        episode_index=episode.episode_index,
        start_frame=episode.start_frame,
        known_tasks=tasks,
    )
    for name, values in counters.items():
        index = table.schema.get_field_index(name)
        field = table.schema.field(index)
        table = table.set_column(index, field, pa.array(values, field.type))
    temp = staging.temp_path(path)
    write_rows(table, temp)
    move_durably(temp, path)
    return counters
