# SPDX-License-Identifier: Apache-2.0
"""Publishes saved episodes: joins them, writes the metadata, moves all files into the dataset.

If the writer is killed at any point, the next writer continues from there.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from robostream import config
from robostream.meta import DatasetInfo, LeRobotDatasetMetadata, Stats, tasks_to_arrow
from robostream.storage import sync_to_disk
from robostream.write.join import plan_joins, run_join
from robostream.write.metadata import (
    conform,
    episode_table,
    new_info,
    new_stats,
    new_tasks,
    with_place,
)
from robostream.write.progress import MB
from robostream.write.rows import PARQUET_OPTIONS
from robostream.write.staging import (
    FilePlace,
    StagedEpisode,
    StagingFolder,
    load_staged,
    make_folder,
    move_durably,
    read_damage,
    remove_folder,
)

_TABLE_FILE = re.compile(r"chunk-(\d+)/file-(\d+)\.parquet$")
# Rows and videos move first, then the metadata, these files last and in this order. Readers see
# nothing new before info.json, which counts the episodes.
_LAST_FILES = (config.TASKS_PATH, config.STATS_PATH, config.INFO_PATH)

logger = logging.getLogger(__name__)


def finish_publishing(staging: StagingFolder) -> None:
    """Remove unfinished files of a killed writer, and complete the move that it had begun."""
    staging.clean()
    if staging.publish.exists():
        _move_into_dataset(staging)


def publish_saved(staging: StagingFolder) -> None:
    """Bring every saved episode into the dataset, after finishing an interrupted publication."""
    finish_publishing(staging)
    if not staging.episodes():
        remove_folder(staging.ready)
        return
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    episodes = load_staged(staging, first=meta.total_episodes)
    if not episodes:
        remove_folder(staging.ready)
        _remove_saved(staging)
        return
    for job in plan_joins(episodes):
        run_join(job, staging, meta.info)
    _write_metadata(staging, meta, episodes)
    remove_folder(staging.temp)
    os.rename(staging.ready, staging.publish)
    sync_to_disk(staging.path)
    _move_into_dataset(staging)


def _write_metadata(
    staging: StagingFolder, meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> None:
    # A failed attempt may have split the episode table into files differently, if the size limits
    # in info.json have changed since.
    remove_folder(staging.ready / "meta")
    tasks = new_tasks(list(meta.tasks), episodes)
    for path, table in _episode_files(meta, episodes):
        _write(staging, path, table)
    _write(staging, config.TASKS_PATH, tasks_to_arrow(tasks))
    if meta.stats is not None or meta.total_episodes == 0:
        stats = new_stats(meta.stats or {}, episodes)
        _write(staging, config.STATS_PATH, _stats_json(stats, meta.info))
    else:
        logger.warning(
            "%s: there is no stats.json to add the new episodes to, so none is written", meta.root
        )
    info = new_info(meta.info, episodes, total_tasks=len(tasks))
    _write(staging, config.INFO_PATH, info.to_json())


def _episode_files(
    meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the new files of the episode table; existing files never change."""
    existing = _existing_files(Path(meta.root))
    place = max(existing).after(meta.chunks_size) if existing else FilePlace(0, 0)
    schema = pq.read_schema(existing[min(existing)]) if existing else None
    table = episode_table(episodes, meta.info)
    per_file = max(1, int(meta.data_files_size_in_mb * MB * len(episodes) / table.nbytes))
    for start in range(0, len(episodes), per_file):
        part = with_place(table.slice(start, per_file), place)
        path = config.EPISODES_PATH.format(chunk_index=place.chunk, file_index=place.file)
        yield path, part if schema is None else conform(part, schema)
        place = place.after(meta.chunks_size)


def _existing_files(root: Path) -> dict[FilePlace, Path]:
    # Found by name, because not every recorder fills the columns meta/episodes/*_index.
    found = {}
    for path in (root / "meta/episodes").glob("*/*.parquet"):
        if match := _TABLE_FILE.search(path.as_posix()):
            found[FilePlace(int(match[1]), int(match[2]))] = path
    return found


def _stats_json(stats: Stats, info: DatasetInfo) -> str:
    # In the order of the features, so that the file does not depend on how often it was extended.
    names = [n for n in info.features if n in stats] + [n for n in stats if n not in info.features]
    lists = {n: {k: value.tolist() for k, value in stats[n].items()} for n in names}
    return json.dumps(lists, indent=4, ensure_ascii=False)


def _write(staging: StagingFolder, relative: str, content: pa.Table | str) -> None:
    target = staging.ready / relative
    temp = staging.temp_path(target)
    if isinstance(content, str):
        temp.write_text(content, encoding="utf-8")
    else:
        pq.write_table(content, temp, **PARQUET_OPTIONS)
    move_durably(temp, target)


def _move_into_dataset(staging: StagingFolder) -> None:
    files = [path.relative_to(staging.publish) for path in staging.publish.rglob("*")]
    for relative in sorted(files, key=_move_order):
        if (staging.publish / relative).is_file():
            move_durably(staging.publish / relative, staging.root / relative)
    _remove_saved(staging)
    remove_folder(staging.publish)


def _move_order(relative: Path) -> tuple[bool, int, str]:
    name = relative.as_posix()
    last = _LAST_FILES.index(name) if name in _LAST_FILES else -1
    return name.startswith("meta/"), last, name


def _remove_saved(staging: StagingFolder) -> None:
    """Delete the folders of published episodes, and move the damaged ones to `.bad-episodes/`."""
    for number, folder in staging.episodes().items():
        damage = read_damage(folder)
        if damage is None:
            remove_folder(folder)
        else:
            kept = _move_to(staging.bad_episodes, folder)
            logger.warning(
                "%s: the saved episode %d is damaged, so it is not part of the dataset, and each "
                "saved episode after it has moved up by one. It is kept in %s. The damage: %s",
                *(staging.root, number, kept, damage),
            )


def _move_to(parent: Path, folder: Path) -> Path:
    make_folder(parent)
    names = (folder.name if k == 1 else f"{folder.name}-{k}" for k in count(1))
    target = next(parent / name for name in names if not (parent / name).exists())
    os.rename(folder, target)
    sync_to_disk(parent)
    return target
