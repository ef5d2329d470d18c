# SPDX-License-Identifier: Apache-2.0
"""Publishes saved episodes in the dataset, and pushes a finished dataset to the Hub.

Publishing joins the episodes, writes the metadata, and moves all files into the dataset. If the
writer is killed at any point, the next writer continues from there.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from robostream import arguments, config
from robostream.errors import MissingFileError, ModeError, SelectionError
from robostream.meta import (
    MOMENTS,
    DatasetInfo,
    LeRobotDatasetMetadata,
    Stats,
    aggregate_stats,
    as_lists,
    as_stats,
    tasks_to_arrow,
)
from robostream.storage import sync_to_disk, upload
from robostream.write.encoder import frame_rate
from robostream.write.join import PARQUET_OPTIONS, plan_joins, run_join, saved_part
from robostream.write.saved_episodes import (
    MB,
    FilePlace,
    StagedEpisode,
    add_tasks,
    load_staged,
    read_damage,
)
from robostream.write.staging import StagingFolder, make_folder, move_durably, remove_folder

_README = "README.md"
_DEFAULT_LICENSE = "apache-2.0"
# Frames that wait to be encoded, which only LeRobot's recorder leaves behind.
_STAGED_IMAGES, _VIDEOS = "images/", "videos/"

_TABLE_FILE = re.compile(r"chunk-(\d+)/file-(\d+)\.parquet$")

logger = logging.getLogger(__name__)


def finish_publishing(staging: StagingFolder) -> None:
    """Remove unfinished files of a killed writer, and complete the move that it had begun."""
    staging.clean()
    if staging.publish.exists():
        _move_into_dataset(staging)


def publish_saved(staging: StagingFolder) -> None:
    """Bring every saved episode into the dataset, after finishing an interrupted publication."""
    finish_publishing(staging)
    meta = LeRobotDatasetMetadata(staging.root.name, root=staging.root)
    episodes = load_staged(staging, first=meta.total_episodes)
    if not episodes:
        remove_folder(staging.ready)
        _remove_saved(staging)
        return
    for job in plan_joins(episodes, meta.info, partial(saved_part, staging)):
        run_join(job, staging)
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
    tasks = add_tasks(list(meta.tasks), [task for episode in episodes for task in episode.tasks])
    info = _extended_info(meta.info, episodes, total_tasks=len(tasks))
    tables, stats = _episode_files(meta, episodes), _extended_stats(meta, episodes)
    for path, content in metadata_files(info, tables, tasks, stats).items():
        target = staging.ready / path
        temp = staging.temp_path(target)
        write_metadata_file(content, temp)
        move_durably(temp, target)


def metadata_files(
    info: DatasetInfo,
    episode_table: Iterable[tuple[str, pa.Table]],
    tasks: Sequence[str],
    stats: Stats | None,
) -> dict[str, pa.Table | str]:
    """Return the content of each file of meta/. Pure."""
    files: dict[str, pa.Table | str] = dict(episode_table)
    files[config.TASKS_PATH] = tasks_to_arrow(tasks)
    if stats is not None:
        lists = {name: as_lists(entry) for name, entry in stats.items()}
        files[config.STATS_PATH] = json.dumps(lists, indent=4, ensure_ascii=False)
    return files | {config.INFO_PATH: info.to_json()}


def write_metadata_file(content: pa.Table | str, path: Path) -> None:
    """Write a file of meta/."""
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        pq.write_table(content, path, **PARQUET_OPTIONS)


def _episode_files(
    meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the new files of the episode table; existing files never change."""
    # Found by name, because not every recorder fills the columns meta/episodes/*_index.
    existing = {
        FilePlace(int(match[1]), int(match[2])): path
        for path in (Path(meta.root) / "meta/episodes").glob("*/*.parquet")
        if (match := _TABLE_FILE.search(path.as_posix()))
    }
    place = max(existing).after(meta.chunks_size) if existing else FilePlace(0, 0)
    schema = pq.read_schema(existing[min(existing)]) if existing else None
    table = pa.Table.from_pylist([episode_row(episode, meta.info) for episode in episodes])
    for path, part in episode_table_files(table, meta.info, place):
        yield path, part if schema is None else _conform(part, schema)


def episode_table_files(
    table: pa.Table, info: DatasetInfo, place: FilePlace
) -> Iterator[tuple[str, pa.Table]]:
    """Yield the path and the rows of each file of an episode table, from `place` on. Pure."""
    per_file = max(1, int(info.data_files_size_in_mb * MB * table.num_rows / table.nbytes))
    for start in range(0, table.num_rows, per_file):
        part = table.slice(start, per_file)
        for name, number in (("chunk_index", place.chunk), ("file_index", place.file)):
            column = pa.array([number] * part.num_rows, pa.int64())
            part = part.append_column(f"meta/episodes/{name}", column)
        path = config.EPISODES_PATH.format(chunk_index=place.chunk, file_index=place.file)
        yield path, part
        place = place.after(info.chunks_size)


def episode_row(episode: StagedEpisode, info: DatasetInfo) -> dict[str, Any]:
    """Return an episode's row of the episode table. Pure."""
    rate = frame_rate(info.fps)
    row: dict[str, Any] = {
        "episode_index": episode.episode_index,
        "tasks": episode.tasks,
        "length": episode.num_frames,
        "data/chunk_index": episode.data.chunk,
        "data/file_index": episode.data.file,
        "dataset_from_index": episode.start_frame,
        "dataset_to_index": episode.start_frame + episode.num_frames,
    }
    for key, video in episode.videos.items():
        row[f"videos/{key}/chunk_index"] = video.place.chunk
        row[f"videos/{key}/file_index"] = video.place.file
        row[f"videos/{key}/from_timestamp"] = float(video.start_frame / rate)
        row[f"videos/{key}/to_timestamp"] = float((video.start_frame + episode.num_frames) / rate)
    for feature, entry in episode.stats.items():
        row |= {f"stats/{feature}/{name}": value for name, value in entry.items()}
    return row


def _conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of an earlier file, since readers want them to be equal."""
    # Another recorder may have written fewer statistics, or columns of its own. Values that have no
    # column there are left out, and columns that only that recorder can fill are null.
    columns = []
    for field in schema:
        column = pa.nulls(table.num_rows, field.type)
        if field.name in table.column_names:
            try:
                column = table.column(field.name).cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                logger.warning(
                    "the episode table stores %s as %s, which cannot hold the values of the new "
                    "episodes; their cells stay empty",
                    *(field.name, field.type),
                )
        columns.append(column)
    return pa.table(columns, schema=schema.remove_metadata())


def _extended_stats(
    meta: LeRobotDatasetMetadata, episodes: Sequence[StagedEpisode]
) -> Stats | None:
    """Return the statistics of the dataset including the saved episodes."""
    if meta.stats is None and meta.total_episodes > 0:
        logger.warning(
            "%s: there is no stats.json to add the new episodes to, so none is written", meta.root
        )
        return None
    known = meta.stats or {}
    complete = {name: entry for name, entry in known.items() if all(k in entry for k in MOMENTS)}
    stats = aggregate_stats([complete, *(as_stats(episode.stats) for episode in episodes)])
    for name in set(known) - set(complete):
        logger.warning(
            "meta/stats.json has no %s of %s, so the statistics of this feature stay as they are, "
            "without the new episodes",
            ", ".join(k for k in MOMENTS if k not in known[name]),
            name,
        )
        stats[name] = known[name]
    # In the order of the features, so that the file does not depend on how often it was extended.
    return {name: stats[name] for name in (*meta.features, *stats) if name in stats}


def _extended_info(
    info: DatasetInfo, episodes: Sequence[StagedEpisode], *, total_tasks: int
) -> DatasetInfo:
    """Return info.json including the saved episodes. Pure."""
    total = info.total_episodes + len(episodes)
    features = copy.deepcopy(info.features)
    for episode in episodes:
        for key, found in episode.camera_info.items():
            features[key]["info"] = {**(features[key].get("info") or {}), **found}
    return dataclasses.replace(
        info,
        features=features,
        total_episodes=total,
        total_frames=info.total_frames + sum(episode.num_frames for episode in episodes),
        total_tasks=total_tasks,
        splits={"train": f"0:{total}"},
    )


def _move_into_dataset(staging: StagingFolder) -> None:
    files = (path for path in staging.publish.rglob("*") if path.is_file())
    names = (path.relative_to(staging.publish).as_posix() for path in files)
    # Rows and videos move first, then the metadata. Readers see nothing new before info.json, which
    # counts the episodes.
    for name in sorted(names, key=lambda n: (n.startswith("meta/"), n == config.INFO_PATH, n)):
        move_durably(staging.publish / name, staging.root / name)
    _remove_saved(staging)
    remove_folder(staging.publish)


def _remove_saved(staging: StagingFolder) -> None:
    """Delete the folders of published episodes, and move the damaged ones to `.bad-episodes/`."""
    for number, folder in staging.episodes().items():
        damage = read_damage(folder)
        if damage is None:
            remove_folder(folder)
        else:
            make_folder(staging.bad_episodes)
            names = (folder.name if k == 1 else f"{folder.name}-{k}" for k in count(1))
            paths = (staging.bad_episodes / name for name in names)
            kept = next(path for path in paths if not path.exists())
            os.rename(folder, kept)
            sync_to_disk(kept.parent)
            logger.warning(
                "%s: the saved episode %d is damaged, so it is not part of the dataset, and each "
                "saved episode after it has moved up by one. It is kept in %s. The damage: %s",
                *(staging.root, number, kept, damage),
            )


def push_dataset(
    meta: LeRobotDatasetMetadata,
    *,
    branch: str | None,
    tags: Sequence[str] | None,
    license: str | None,
    tag_version: bool,
    push_videos: bool,
    private: bool | None,
    allow_patterns: list[str] | str | None,
    token: str | None,
) -> None:
    """Upload a local dataset; `LeRobotDataset.push_to_hub` has the arguments."""
    # A README.md in the dataset's folder is uploaded as it is, else a card is written for the Hub.
    root = meta.root
    if not isinstance(root, Path):
        raise ModeError(f"{root}: only a dataset in a local folder can be pushed; copy it first")
    has_card = (root / _README).exists()
    if has_card and (tags is not None or license != _DEFAULT_LICENSE):
        raise SelectionError(
            f"{root / _README} is pushed as it is, so tags and license have no effect; write them "
            "there, or remove the file to have a card made"
        )
    if allow_patterns is None:
        _check_complete(meta, root, with_videos=push_videos)
    upload(
        meta.repo_id,
        root,
        branch=branch,
        private=private,
        allow_patterns=allow_patterns,
        ignore_patterns=[_STAGED_IMAGES, *([] if push_videos else [_VIDEOS])],
        readme=None if has_card else dataset_card(meta, tags=tags, license=license),
        tag=meta.info.codebase_version if tag_version else None,
        token=token,
    )


def dataset_card(
    meta: LeRobotDatasetMetadata, *, tags: Sequence[str] | None, license: str | None
) -> str:
    """Return the README.md of a dataset on the Hub."""
    # By the first lines, which LeRobot writes too, the Hub lists and shows LeRobot datasets.
    from huggingface_hub import DatasetCardData

    data = DatasetCardData(
        license=license,
        tags=["LeRobot", *arguments.names(tags or [], "tags")],
        task_categories=["robotics"],
        configs=[{"config_name": "default", "data_files": "data/*/*.parquet"}],
    )
    return f"""---
{data.to_yaml()}
---

# {meta.repo_id.rsplit("/", 1)[-1]}

A [LeRobot](https://github.com/huggingface/lerobot) dataset, format {meta.info.codebase_version}.

| | |
|---|---|
| robot | {meta.robot_type or "not named"} |
| episodes | {meta.total_episodes} |
| frames | {meta.total_frames}, {meta.fps} per second |
| tasks | {meta.total_tasks} |
| cameras | {", ".join(f"`{key}`" for key in meta.camera_keys) or "none"} |

## Structure

[meta/info.json](meta/info.json):

```json
{meta.info.to_json()}
```
"""


def _check_complete(meta: LeRobotDatasetMetadata, root: Path, *, with_videos: bool) -> None:
    """Raise if a file of the dataset is not in its folder, as after a partial download."""
    episodes = range(meta.total_episodes)
    files = {meta.get_data_file_path(episode) for episode in episodes}
    for key in meta.video_keys if with_videos else []:
        files |= {meta.get_video_file_path(episode, key) for episode in episodes}
    missing = sorted(str(file) for file in files if not (root / file).exists())
    if missing:
        raise MissingFileError(
            f"{root}: {len(missing)} of the dataset's {len(files)} files are not here, the first "
            f"is {missing[0]}. Download all of it before pushing it, or choose files with "
            "allow_patterns."
        )
