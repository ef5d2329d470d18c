# SPDX-License-Identifier: Apache-2.0
"""Brings saved episodes into the dataset: joins them, writes the metadata, moves all into place.

If the writer is killed at any point of this, the next writer goes on from there.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata, Stats, tasks_to_arrow
from robostream.storage import sync_to_disk
from robostream.write.bad_episodes import remove_saved
from robostream.write.file_places import MB, FilePlace
from robostream.write.jobs import all_jobs, run_job
from robostream.write.join_data import PARQUET_OPTIONS
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    load_staged,
    place_whole,
    remove_folder,
)
from robostream.write.tables import (
    conform,
    episode_table,
    new_info,
    new_stats,
    new_tasks,
    with_place,
)

_TABLE_FILE = re.compile(r"chunk-(\d+)/file-(\d+)\.parquet$")
# The order in which the metadata is moved, after rows and videos. info.json comes last: it counts
# the episodes, so until it is there a reader finds nothing new.
_LATER = (config.TASKS_PATH, config.STATS_PATH, config.INFO_PATH)

logger = logging.getLogger(__name__)


def finish_publishing(staging: StagingFolder) -> None:
    """Complete what a killed writer had begun to move into the dataset, and clear up after it."""
    staging.clean()
    if staging.publish.exists():
        _move_into_place(staging)


def publish_saved(staging: StagingFolder) -> None:
    """Bring every saved episode into the dataset, after finishing what an earlier try began."""
    finish_publishing(staging)
    if not staging.episodes():
        remove_folder(staging.ready)
        return
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    episodes = load_staged(staging, first=meta.total_episodes)
    if not episodes:
        remove_folder(staging.ready)
        remove_saved(staging)
        return
    for job in all_jobs(episodes):
        run_job(job, staging, meta.info)
    _write_metadata(staging, meta, episodes)
    remove_folder(staging.aside)
    os.rename(staging.ready, staging.publish)
    sync_to_disk(staging.path)
    _move_into_place(staging)


def first_new_place(meta: LeRobotDatasetMetadata, prefix: str) -> FilePlace:
    """Return the place after the last file of rows or of a camera that the episode table names."""
    if len(meta.episodes) == 0:
        return FilePlace(0, 0)
    chunks = meta.episodes[f"{prefix}/chunk_index"]
    files = meta.episodes[f"{prefix}/file_index"]
    last_chunk = chunks.max()
    last = FilePlace(int(last_chunk), int(files[chunks == last_chunk].max()))
    return last.after(meta.chunks_size)


def _write_metadata(
    staging: StagingFolder, meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> None:
    # An earlier try that failed may have left other files here: somebody may have changed the size
    # limits in info.json since, by which the episode table is cut into files.
    remove_folder(staging.ready / "meta")
    tasks = new_tasks(list(meta.tasks), episodes)
    for path, table in _episode_files(meta, episodes):
        _write_parquet(staging, path, table)
    _write_parquet(staging, config.TASKS_PATH, tasks_to_arrow(tasks))
    if meta.stats is not None or meta.total_episodes == 0:
        stats = new_stats(meta.stats or {}, episodes)
        _write_text(staging, config.STATS_PATH, _stats_text(stats, meta.info))
    else:
        logger.warning(
            "%s: there is no stats.json to add the new episodes to, so none is written", meta.root
        )
    info = new_info(meta.info, episodes, total_tasks=len(tasks))
    _write_text(staging, config.INFO_PATH, info.to_json())


def _episode_files(
    meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the new files of the episode table; earlier ones are never touched."""
    earlier = _earlier_files(Path(meta.root))
    place = max(earlier).after(meta.chunks_size) if earlier else FilePlace(0, 0)
    schema = pq.read_schema(earlier[min(earlier)]) if earlier else None
    table = episode_table(episodes, meta.info)
    per_file = max(1, int(meta.data_files_size_in_mb * MB * len(episodes) / table.nbytes))
    for start in range(0, len(episodes), per_file):
        piece = with_place(table.slice(start, per_file), place)
        path = config.EPISODES_PATH.format(chunk_index=place.chunk, file_index=place.file)
        yield path, piece if schema is None else conform(piece, schema)
        place = place.after(meta.chunks_size)


def _earlier_files(root: Path) -> dict[FilePlace, Path]:
    # Files are found by their names, because not every recorder writes into the episode table in
    # which of its files a row lies.
    found = {}
    for path in (root / "meta/episodes").glob("*/*.parquet"):
        if match := _TABLE_FILE.search(path.as_posix()):
            found[FilePlace(int(match[1]), int(match[2]))] = path
    return found


def _stats_text(stats: Stats, info: DatasetInfo) -> str:
    # In the order of the features, so that the file is the same however often it was extended.
    names = [n for n in info.features if n in stats] + [n for n in stats if n not in info.features]
    lists = {n: {k: value.tolist() for k, value in stats[n].items()} for n in names}
    return json.dumps(lists, indent=4, ensure_ascii=False)


def _write_parquet(staging: StagingFolder, relative: str, table: pa.Table) -> None:
    aside = _aside(staging, relative)
    pq.write_table(table, aside, **PARQUET_OPTIONS)
    place_whole(aside, staging.ready / relative)


def _write_text(staging: StagingFolder, relative: str, text: str) -> None:
    aside = _aside(staging, relative)
    aside.write_text(text, encoding="utf-8")
    place_whole(aside, staging.ready / relative)


def _aside(staging: StagingFolder, relative: str) -> Path:
    staging.aside.mkdir(parents=True, exist_ok=True)
    return staging.aside / relative.replace("/", "+")


def _move_into_place(staging: StagingFolder) -> None:
    files = [path.relative_to(staging.publish) for path in staging.publish.rglob("*")]
    for relative in sorted(files, key=_moving_order):
        if (staging.publish / relative).is_file():
            place_whole(staging.publish / relative, staging.root / relative)
    remove_saved(staging)
    remove_folder(staging.publish)


def _moving_order(relative: Path) -> tuple[bool, int, str]:
    name = relative.as_posix()
    return name.startswith("meta/"), _LATER.index(name) if name in _LATER else -1, name
