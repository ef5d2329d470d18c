# SPDX-License-Identifier: Apache-2.0
"""The metadata of a dataset with the new episodes added: episode table, tasks, stats, info."""

from __future__ import annotations

import copy
import dataclasses
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from robostream.meta import CAMERA_DTYPES, DatasetInfo, Features, Stats
from robostream.write.encoder import frame_rate
from robostream.write.episode_stats import NAMES, NO_STATS_DTYPES, FeatureStats, aggregate_stats
from robostream.write.file_places import FilePlace
from robostream.write.staging import StagedEpisode

logger = logging.getLogger(__name__)

_NEEDED = ("min", "max", "mean", "std", "count")


def episode_table(episodes: Sequence[StagedEpisode], info: DatasetInfo) -> pa.Table:
    """Return the rows of saved episodes, without the columns that `with_place` adds. Pure."""
    return pa.Table.from_pylist([_row(episode, info) for episode in episodes], schema=_schema(info))


def with_place(table: pa.Table, place: FilePlace) -> pa.Table:
    """Return the table with the columns that say which file of the table holds it. Pure."""
    for name, number in (("chunk_index", place.chunk), ("file_index", place.file)):
        column = pa.array([number] * table.num_rows, pa.int64())
        table = table.append_column(f"meta/episodes/{name}", column)
    return table


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the table with the columns of an earlier file of the same table. Pure.

    Readers want the same columns in all files. If another recorder began the table, it may have
    written fewer statistics, and columns that only it knows. Of the new episodes, values without a
    column there are left out, and columns that only the other recorder can fill stay empty.
    """
    columns = [_conformed(table, field) for field in schema]
    return pa.table(columns, schema=schema.remove_metadata())


def new_tasks(known: Sequence[str], episodes: Sequence[StagedEpisode]) -> list[str]:
    """Return the known tasks and then the new ones, in the order they first appear. Pure."""
    return list(dict.fromkeys([*known, *(task for e in episodes for task in e.tasks)]))


def new_stats(known: Stats, episodes: Sequence[StagedEpisode]) -> Stats:
    """Return the statistics of the dataset with the new episodes in it."""
    whole = {name: entry for name, entry in known.items() if all(k in entry for k in _NEEDED)}
    added = [
        {name: _as_arrays(entry) for name, entry in episode.stats.items()} for episode in episodes
    ]
    stats = aggregate_stats([whole, *added])
    for name in set(known) - set(whole):
        logger.warning(
            "meta/stats.json has no %s of %s, so the new episodes cannot be added to the "
            "statistics of this feature; they are left unchanged",
            ", ".join(k for k in _NEEDED if k not in known[name]),
            name,
        )
        stats[name] = known[name]
    return stats


def new_info(
    info: DatasetInfo, episodes: Sequence[StagedEpisode], *, total_tasks: int
) -> DatasetInfo:
    """Return info.json's record with the new episodes counted. Pure."""
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


def _conformed(table: pa.Table, field: pa.Field) -> Any:
    if field.name in table.column_names:
        try:
            return table.column(field.name).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            logger.warning(
                "the episode table stores %s as %s, which cannot hold the new episodes' values; "
                "they stay empty there",
                field.name,
                field.type,
            )
    return pa.nulls(table.num_rows, field.type)


def _row(episode: StagedEpisode, info: DatasetInfo) -> dict[str, Any]:
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


def _schema(info: DatasetInfo) -> pa.Schema:
    whole, real = pa.int64(), pa.float64()
    columns: dict[str, pa.DataType] = {"episode_index": whole, "tasks": pa.list_(pa.string())}
    for name in ("length", "data/chunk_index", "data/file_index"):
        columns[name] = whole
    columns |= {"dataset_from_index": whole, "dataset_to_index": whole}
    for key in info.video_keys:
        columns |= {f"videos/{key}/chunk_index": whole, f"videos/{key}/file_index": whole}
        columns |= {f"videos/{key}/from_timestamp": real, f"videos/{key}/to_timestamp": real}
    columns |= _stats_columns(info.features)
    return pa.schema(list(columns.items()))


def _stats_columns(features: Features) -> dict[str, pa.DataType]:
    columns: dict[str, pa.DataType] = {}
    for feature, entry in features.items():
        if entry["dtype"] in NO_STATS_DTYPES:
            continue
        numbers = pa.list_(pa.float64())
        if entry["dtype"] in CAMERA_DTYPES:
            numbers = pa.list_(pa.list_(numbers))
        for name in NAMES:
            kind = pa.list_(pa.int64()) if name == "count" else numbers
            columns[f"stats/{feature}/{name}"] = kind
    return columns


def _as_arrays(entry: Mapping[str, Any]) -> FeatureStats:
    return {name: np.asarray(value) for name, value in entry.items()}
