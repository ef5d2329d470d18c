# SPDX-License-Identifier: Apache-2.0
"""Gives saved episodes new numbers after one was set aside, so that no number is missing."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from robostream.meta import LeRobotDatasetMetadata
from robostream.write.episode_stats import column_stats
from robostream.write.file_places import FilePlace
from robostream.write.join_data import read_rows, write_rows
from robostream.write.staging import (
    StagedEpisode,
    StagingFolder,
    load_staged,
    place_whole,
    replace_record,
    rows_path,
)
from robostream.write.tables import new_tasks


def renumber_saved(
    staging: StagingFolder,
    meta: LeRobotDatasetMetadata,
    *,
    camera_info: Mapping[str, Mapping[str, Any]],
) -> None:
    """Number the saved episodes on from those in the dataset, in their rows and records.

    An episode's rows are replaced first and its record second. If the process is killed in between,
    the record still has the old number, and the next call replaces the rows again by the same ones.

    Args:
        staging: The saved episodes. Rows of those that change their number must not be joined yet.
        meta: The dataset, without the saved episodes.
        camera_info: What the records of bad episodes say about the cameras.
    """
    found = load_staged(staging, first=meta.total_episodes)
    tasks = list(meta.tasks)
    for old, new in zip(found, _renumbered(found, meta), strict=True):
        tasks = new_tasks(tasks, [new])
        if new.episode_index == old.episode_index:
            continue
        counters = _write_counters(staging, new, tasks)
        stats = {name: _as_lists(values) for name, values in counters.items()}
        merged = {**camera_info, **new.camera_info}
        infos = {key: {**camera_info.get(key, {}), **entry} for key, entry in merged.items()}
        record = dataclasses.replace(new, stats={**new.stats, **stats}, camera_info=infos)
        replace_record(staging.episode(new.saved_as), record)


def _renumbered(
    episodes: Sequence[StagedEpisode], meta: LeRobotDatasetMetadata
) -> list[StagedEpisode]:
    """Return the episodes with their places in the dataset and in its videos. Pure."""
    start_frame = meta.total_frames
    filled: defaultdict[tuple[str, FilePlace], int] = defaultdict(int)
    wanted = []
    for number, episode in enumerate(episodes, start=meta.total_episodes):
        videos = {}
        for key, video in episode.videos.items():
            videos[key] = dataclasses.replace(video, start_frame=filled[key, video.place])
            filled[key, video.place] += episode.num_frames
        wanted.append(
            dataclasses.replace(
                episode, episode_index=number, start_frame=start_frame, videos=videos
            )
        )
        start_frame += episode.num_frames
    return wanted


def _write_counters(
    staging: StagingFolder, episode: StagedEpisode, tasks: Sequence[str]
) -> dict[str, Any]:
    """Replace the columns of an episode's rows that depend on its number, and return them."""
    path = rows_path(staging.episode(episode.saved_as))
    table = read_rows(path)
    counters = {
        "episode_index": np.full(episode.num_frames, episode.episode_index),
        "index": episode.start_frame + np.arange(episode.num_frames),
        "task_index": _task_numbers(table["task_index"].to_numpy(), episode, tasks),
    }
    for name, values in counters.items():
        place = table.schema.get_field_index(name)
        field = table.schema.field(place)
        table = table.set_column(place, field, pa.array(values, field.type))
    aside = staging.aside / f"renumbered-{episode.saved_as}.parquet"
    aside.parent.mkdir(parents=True, exist_ok=True)
    write_rows(table, aside)
    place_whole(aside, path)
    return counters


def _task_numbers(found: Any, episode: StagedEpisode, tasks: Sequence[str]) -> Any:
    # The record lists the episode's tasks in the order in which they appear in its rows.
    text_of = dict(zip(dict.fromkeys(found.tolist()), episode.tasks, strict=True))
    number_of = {text: number for number, text in enumerate(tasks)}
    return np.array([number_of[text_of[number]] for number in found.tolist()])


def _as_lists(values: Any) -> dict[str, Any]:
    return {name: value.tolist() for name, value in column_stats(values).items()}
