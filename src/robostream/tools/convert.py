# SPDX-License-Identifier: Apache-2.0
"""`convert_dataset`: a v2.0 or v2.1 dataset as v3.0, without re-encoding, and its metadata."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from robostream import config, write
from robostream.errors import MissingFileError, SelectionError
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata, location_of, read_episode_stats
from robostream.storage import FileOpener
from robostream.tools import convert_files
from robostream.tools.child_processes import run_jobs
from robostream.tools.convert_files import EpisodeFiles, SourceEpisode, sound_blocks
from robostream.tools.staging import (
    check_folders,
    copy_cheaply,
    new_file,
    staging_folder,
    visible_files,
)

logger = logging.getLogger(__name__)

# Episodes whose statistics become Arrow at a time; as Python objects they take far more.
_STATS_AT_A_TIME = 1000
# Episodes that a child inspects at a time.
_INSPECTED_AT_A_TIME = 64
# Files that the copy has in other forms, or that only recorders need.
_OLD_TABLES = (config.V2_EPISODES_PATH, config.V2_TASKS_PATH, config.V2_STATS_PATH)
_REPLACED = (config.INFO_PATH, config.STATS_PATH, config.TASKS_PATH, *_OLD_TABLES)
_REPLACED_FOLDERS = ("data/", "videos/", "images/", "meta/episodes/")


@dataclass(frozen=True, slots=True)
class ConvertReport:
    """What was made."""

    path: Path
    version: str  # the version of the source
    episodes: int
    frames: int
    cameras: int
    source_files: int  # data and video files of the source
    files: int  # those of the copy
    kept_files: int  # how many of them an interrupted run had made already
    copied_files: int  # other files, such as README.md, copied as they are


def convert_dataset(
    root: str | Path,
    copy: str | Path,
    *,
    jobs: int = 1,
    data_files_size_in_mb: float = config.DATA_FILES_SIZE_IN_MB,
    video_files_size_in_mb: float = config.VIDEO_FILES_SIZE_IN_MB,
) -> ConvertReport:
    """Make a v3.0 copy of a local v2.0 or v2.1 dataset in `copy`, a folder that must not exist.

    Rows and video packets are copied, and compared with the source. Nothing is decoded. The copy
    appears when it is complete. An interrupted run resumes: files that are complete, and still
    equal to the source, stay. One of `jobs` processes alone is this one. A file that reaches its
    size in MB is full.

    Raises:
        DatasetError: The dataset, or one of its files, cannot be read.
        SelectionError: The dataset is not v2.0 or v2.1.
        WriteError: A folder is unsuitable, the disk fails, or a joined file differs.
    """
    source, target = check_folders(root, copy)
    meta = LeRobotDatasetMetadata(source.name, root=source)
    if not meta.info.is_v2:
        raise SelectionError(
            f"{source}: want a dataset of v2.0 or v2.1, found {meta.info.codebase_version}, which "
            "needs no conversion"
        )
    meta.ensure_readable()
    limits = {
        "data_files_size_in_mb": data_files_size_in_mb,
        "video_files_size_in_mb": video_files_size_in_mb,
    }
    info = converted_info(meta, **limits)
    record = {"root": str(source), "dataset": meta.fingerprint, **limits}
    with staging_folder(target, record, doing="converting") as staging:
        episodes = convert_files.list_episodes(meta, source)
        inspected = _inspect(episodes, info, jobs)
        convert_files.warn_of_losses(meta, episodes[0])
        placed = convert_files.place_episodes(meta, inspected, info)
        todo = convert_files.plan_files(placed, inspected, info)
        _remove_unplanned(todo, staging)
        frames = sum(job.num_frames for job in todo)
        make = partial(convert_files.make_file, staging, info)
        kept = sum(run_jobs(make, todo, processes=jobs, label="convert", frames=frames))
        write_tables(meta, placed, info, staging)
        copied = _copy_others(source, episodes, staging)
    return ConvertReport(
        path=target,
        version=meta.info.codebase_version,
        episodes=meta.total_episodes,
        frames=meta.total_frames,
        cameras=len(meta.video_keys),
        source_files=sum(map(len, inspected)),
        files=len(todo),
        kept_files=kept,
        copied_files=copied,
    )


def _inspect(
    episodes: Sequence[SourceEpisode], info: DatasetInfo, processes: int
) -> list[EpisodeFiles]:
    step, frames = _INSPECTED_AT_A_TIME, sum(episode.num_frames for episode in episodes)
    some = [episodes[at : at + step] for at in range(0, len(episodes), step)]
    inspect = partial(convert_files.inspect_episodes, info)
    found = run_jobs(inspect, some, processes=processes, label="inspect", frames=frames)
    return list(chain(*found))


def _remove_unplanned(jobs: Sequence[write.JoinJob], staging: Path) -> None:
    """Remove files of an interrupted run that the copy, as its source is now, does not have."""
    planned = {staging / job.path for job in jobs}
    for path in staging.rglob("*"):
        if path.is_file() and path not in planned:
            path.unlink()


def _copy_others(source: Path, episodes: Sequence[SourceEpisode], staging: Path) -> int:
    """Copy the files that stay as they are; return how many there are."""
    joined = {path for episode in episodes for path in episode.files.values()}
    copied = 0
    for name in visible_files(source):
        is_replaced = name in _REPLACED or name.startswith(_REPLACED_FOLDERS)
        if not is_replaced and source / name not in joined:
            copy_cheaply(source / name, staging / name, link=False)
            copied += 1
    return copied


def converted_info(
    meta: LeRobotDatasetMetadata, *, data_files_size_in_mb: float, video_files_size_in_mb: float
) -> DatasetInfo:
    """Return info.json of v3.0 for a v2.x dataset. Pure."""
    info = meta.info
    silent = {
        key: entry | {block: entry[block] | {"has_audio": False} for block in sound_blocks(entry)}
        for key, entry in info.features.items()
    }
    return dataclasses.replace(
        info,
        features=info.features | silent,
        codebase_version=config.CODEBASE_VERSION,
        total_tasks=len(meta.tasks),
        chunks_size=config.CHUNKS_SIZE,
        data_files_size_in_mb=data_files_size_in_mb,
        video_files_size_in_mb=video_files_size_in_mb,
        data_path=config.DATA_PATH,
        video_path=config.VIDEO_PATH if info.video_keys else None,
    )


def write_tables(
    meta: LeRobotDatasetMetadata,
    episodes: Sequence[write.StagedEpisode],
    info: DatasetInfo,
    staging: Path,
) -> None:
    """Write the files of meta/ of the copy."""
    table = pa.Table.from_pylist([write.episode_row(episode, info) for episode in episodes])
    if (stats := _stats_table(meta)) is not None:
        columns = [*table.columns, *stats.columns]
        table = pa.table(columns, [*table.column_names, *stats.column_names])
    tables = write.episode_table_files(table, info, write.FilePlace(0, 0))
    for path, content in write.metadata_files(info, tables, list(meta.tasks), meta.stats).items():
        with new_file(staging / path) as part:
            write.write_metadata_file(content, part)


def _stats_table(meta: LeRobotDatasetMetadata) -> pa.Table | None:
    """Return the statistics of every episode in columns; None for v2.0, which has none of them."""
    found = _read_stats(meta)
    tables, order = [], []
    while some := list(islice(found, _STATS_AT_A_TIME)):
        order += [episode for episode, _ in some]
        names = dict.fromkeys(name for _, row in some for name in row)
        tables.append(pa.table({name: [row.get(name) for _, row in some] for name in names}))
    if not tables:
        return None
    row_of = dict(zip(order, range(len(order)), strict=True))
    rows = [row_of.get(episode) for episode in range(meta.total_episodes)]
    if None in rows:
        logger.warning(
            "%s: %d of the %d episodes have no statistics in %s, the first is episode %d",
            *(meta.root, rows.count(None), len(rows), config.V2_STATS_PATH, rows.index(None)),
        )
    joined = pa.concat_tables(tables, promote_options="permissive")
    return joined.take(pa.array(rows, pa.int64()))


def _read_stats(meta: LeRobotDatasetMetadata) -> Iterator[tuple[int, dict[str, Any]]]:
    # Whole numbers in some episodes and fractions in others would be two types of one column.
    with suppress(MissingFileError):
        opener = FileOpener(location_of(meta))
        for episode, stats in read_episode_stats(opener, meta.total_episodes):
            row = {}
            for feature, entry in stats.items():
                for name, value in entry.items():
                    numbers = np.asarray(value, np.int64 if name == "count" else np.float64)
                    row[f"stats/{feature}/{name}"] = numbers.tolist()
            yield episode, row
