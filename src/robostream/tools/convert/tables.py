# SPDX-License-Identifier: Apache-2.0
"""The metadata of the copy: episode table, tasks, statistics and info.json of v3.0."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.errors import MissingFileError
from robostream.meta import (
    DatasetInfo,
    LeRobotDatasetMetadata,
    as_lists,
    location_of,
    read_episode_stats,
    tasks_to_arrow,
)
from robostream.storage import FileOpener, sync_to_disk, write_bytes_atomic
from robostream.tools.convert.sources import sound_blocks
from robostream.write import (
    PARQUET_OPTIONS,
    FilePlace,
    StagedEpisode,
    episode_row,
    episode_table_files,
)

logger = logging.getLogger(__name__)

# Episodes whose statistics become Arrow at a time; as Python objects they take far more.
_STATS_AT_A_TIME = 1000


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
    episodes: Sequence[StagedEpisode],
    info: DatasetInfo,
    staging: Path,
) -> None:
    """Write the files of meta/ of the copy."""
    table = pa.Table.from_pylist([episode_row(episode, info) for episode in episodes])
    stats = _stats_table(meta)
    if stats is not None:
        columns = [*table.columns, *stats.columns]
        table = pa.table(columns, [*table.column_names, *stats.column_names])
    for path, part in episode_table_files(table, info, FilePlace(0, 0)):
        _write_parquet(part, staging / path)
    _write_parquet(tasks_to_arrow(list(meta.tasks)), staging / config.TASKS_PATH)
    if meta.stats is not None:
        lists = {name: as_lists(entry) for name, entry in meta.stats.items()}
        text = json.dumps(lists, indent=4, ensure_ascii=False)
        write_bytes_atomic(staging / config.STATS_PATH, text.encode())
    write_bytes_atomic(staging / config.INFO_PATH, info.to_json().encode())


def _stats_table(meta: LeRobotDatasetMetadata) -> pa.Table | None:
    """Return the statistics of every episode in columns; None if the dataset has none per episode.

    v2.0 has statistics of the whole dataset only.
    """
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
    try:
        for episode, stats in read_episode_stats(
            FileOpener(location_of(meta)), meta.total_episodes
        ):
            yield (
                episode,
                {
                    f"stats/{feature}/{name}": _as_doubles(name, value)
                    for feature, entry in stats.items()
                    for name, value in entry.items()
                },
            )
    except MissingFileError:
        return


def _as_doubles(name: str, value: Any) -> Any:
    # Whole numbers in some episodes and fractions in others would be two types of one column.
    return np.asarray(value, np.int64 if name == "count" else np.float64).tolist()


def _write_parquet(table: pa.Table, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, target, **PARQUET_OPTIONS)
    sync_to_disk(target)
