# SPDX-License-Identifier: Apache-2.0
"""The dataset's metadata with the saved episodes added: episode table, tasks, stats, info."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from robostream.meta import CAMERA_DTYPES, DatasetInfo, Stats
from robostream.write.encoder import frame_rate
from robostream.write.episode_stats import MOMENTS, NAMES, NO_STATS_DTYPES, aggregate_stats
from robostream.write.staging import FilePlace, StagedEpisode

logger = logging.getLogger(__name__)


def episode_table(episodes: Sequence[StagedEpisode], info: DatasetInfo) -> pa.Table:
    """Return the episode table's rows, without the columns that `with_place` adds. Pure."""
    schema = _episode_schema(info)
    return pa.Table.from_pylist([_episode_row(e, info) for e in episodes], schema=schema)


def with_place(table: pa.Table, place: FilePlace) -> pa.Table:
    """Return the table with the columns that name the file it is stored in. Pure."""
    for name, number in (("chunk_index", place.chunk), ("file_index", place.file)):
        column = pa.array([number] * table.num_rows, pa.int64())
        table = table.append_column(f"meta/episodes/{name}", column)
    return table


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of an earlier file, since readers want them to be equal.

    Another recorder may have written fewer statistics, or columns of its own. Values that have no
    column there are left out, and columns that only that recorder can fill are null.
    """
    columns = [_conform_column(table, field) for field in schema]
    return pa.table(columns, schema=schema.remove_metadata())


def new_tasks(known: Sequence[str], episodes: Sequence[StagedEpisode]) -> list[str]:
    """Return the known tasks and then the new ones, in order of first appearance. Pure."""
    return list(dict.fromkeys([*known, *(task for e in episodes for task in e.tasks)]))


def new_stats(known: Stats, episodes: Sequence[StagedEpisode]) -> Stats:
    """Return the statistics of the dataset including the saved episodes."""
    complete = {name: entry for name, entry in known.items() if all(k in entry for k in MOMENTS)}
    added = [
        {
            feature: {name: np.asarray(value) for name, value in entry.items()}
            for feature, entry in episode.stats.items()
        }
        for episode in episodes
    ]
    stats = aggregate_stats([complete, *added])
    for name in set(known) - set(complete):
        logger.warning(
            "meta/stats.json has no %s of %s, so the statistics of this feature stay as they are, "
            "without the new episodes",
            ", ".join(k for k in MOMENTS if k not in known[name]),
            name,
        )
        stats[name] = known[name]
    return stats


def new_info(
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


def _conform_column(table: pa.Table, field: pa.Field) -> Any:
    if field.name in table.column_names:
        try:
            return table.column(field.name).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            logger.warning(
                "the episode table stores %s as %s, which cannot hold the values of the new "
                "episodes; their cells stay empty",
                field.name,
                field.type,
            )
    return pa.nulls(table.num_rows, field.type)


def _episode_row(episode: StagedEpisode, info: DatasetInfo) -> dict[str, Any]:
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


def _episode_schema(info: DatasetInfo) -> pa.Schema:
    whole, real = pa.int64(), pa.float64()
    columns: dict[str, pa.DataType] = {"episode_index": whole, "tasks": pa.list_(pa.string())}
    for name in ("length", "data/chunk_index", "data/file_index"):
        columns[name] = whole
    columns |= {"dataset_from_index": whole, "dataset_to_index": whole}
    for key in info.video_keys:
        columns |= {f"videos/{key}/chunk_index": whole, f"videos/{key}/file_index": whole}
        columns |= {f"videos/{key}/from_timestamp": real, f"videos/{key}/to_timestamp": real}
    for feature, entry in info.features.items():
        if entry["dtype"] in NO_STATS_DTYPES:
            continue
        is_camera = entry["dtype"] in CAMERA_DTYPES
        numbers = pa.list_(pa.list_(pa.list_(real))) if is_camera else pa.list_(real)
        for name in NAMES:
            columns[f"stats/{feature}/{name}"] = pa.list_(whole) if name == "count" else numbers
    return pa.schema(list(columns.items()))
