# SPDX-License-Identifier: Apache-2.0
"""Checks of meta/: version, counts, tasks, statistics, spans and lengths. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from robostream.errors import CompatibilityError
from robostream.meta import (
    CAMERA_DTYPES,
    MOMENTS,
    NO_STATS_DTYPES,
    QUANTILES,
    FeatureStats,
    LeRobotDatasetMetadata,
    image_shape,
    is_depth,
)
from robostream.tools.doctor.findings import Item, Remarks, check, error, note, shorten, warning

# The cure of wrong statistics.
COMPUTE_STATS = "Compute them again: robostream stats DATASET --write DEST, or --fix."
# Recorders round, and add up in other orders.
_ROUNDING = 1e-4
# A span's end is measured in the encoded file, whose last frame may last a bit more or less.
_SLACK_FRAMES = 0.9
# Policies of LeRobot predict so many frames at a time, or more.
_USUAL_CHUNK = 50


@dataclass(frozen=True, slots=True)
class Opening(Item):
    """Whether the metadata can be read, and the branches and tags of a dataset on the Hub."""

    failure: Exception | None = None
    version: str = ""
    refs: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Tables(Item):
    """The metadata."""

    meta: LeRobotDatasetMetadata
    contradictions: Sequence[Exception] = ()  # errors in it that do not prevent reading the rest
    stray_files: Sequence[str] = ()  # of rows, videos, staged images; no episode refers to them
    is_being_recorded: bool = False  # whether a recorder left episodes that are not in the dataset
    chunk: int | None = None  # frames that a policy predicts at a time; None for the usual number


def is_policy_feature(key: str) -> bool:
    """Return whether policies read or predict a feature. Pure."""
    return key.startswith(("action", "observation.state", "observation.environment_state"))


def recorded_numbers(meta: LeRobotDatasetMetadata, key: str) -> FeatureStats:
    """Return the recorded statistics of a feature, without those that are not numbers."""
    entry = (meta.stats or {}).get(key, {})
    return {name: value for name, value in entry.items() if value.dtype.kind in "biuf"}


@check(why="nothing can be loaded", cure="Do what the message says.")
def metadata(opening: Opening) -> Remarks:
    """The files of meta/ can be read."""
    if opening.failure and not isinstance(opening.failure, CompatibilityError):
        yield error(str(opening.failure))


@check(
    why="LeRobot finds a dataset on the Hub by the tag of its version",
    cure="Convert an old dataset; tag a new one: hf repo tag create NAME v3.0 --repo-type dataset",
)
def version(opening: Opening) -> Remarks:
    """The codebase version is a known one, and a tag on the Hub."""
    if isinstance(opening.failure, CompatibilityError):
        yield error(str(opening.failure))
    elif opening.refs is not None and opening.version not in opening.refs:
        refs = shorten(opening.refs)
        yield warning(f"info.json says {opening.version}, the repository has no such tag: {refs}.")


@check(why="readers refuse the dataset, or leave episodes out")
def counts(tables: Tables) -> Remarks:
    """The counts of info.json, episode table and tasks agree."""
    meta, num_episodes = tables.meta, len(tables.meta.episodes)
    yield from (error(str(contradiction)) for contradiction in tables.contradictions)
    if meta.total_tasks != len(meta.tasks):
        yield warning(f"info.json counts {meta.total_tasks} tasks, found {len(meta.tasks)}.")
    for name, text in split_texts(meta.info.splits).items():
        if int(text.partition(":")[2]) > num_episodes:
            yield warning(f"the split {name} is {text}, there are {num_episodes} episodes.")


def split_texts(splits: object) -> dict[str, str]:
    """Return the splits of info.json that name episodes, such as "0:80". Pure."""
    named = splits.items() if isinstance(splits, dict) else ()
    return {name: text for name, text in named if re.fullmatch(r"\d+:\d+", str(text), re.ASCII)}


@check(
    why="episodes that were recorded are missing in training",
    cure="LeRobotDataset.resume(...).finalize(); delete files that are not wanted.",
)
def unfinished(tables: Tables) -> Remarks:
    """The recording was finalised, and every file belongs to an episode."""
    if tables.is_being_recorded:
        yield warning("a recorder left saved episodes in .recording/ that are not in the dataset.")
    if tables.stray_files:
        yield warning(f"files that belong to no episode: {shorten(tables.stray_files)}.")


@check(why="a policy learns the wrong instruction", cure="Write the texts again.")
def tasks(tables: Tables) -> Remarks:
    """Every episode has a task, every task one text."""
    meta = tables.meta
    if doubled := [text for text, count in Counter(meta.tasks).items() if count > 1]:
        yield warning(f"the same text has several task numbers: {shorten(doubled)}.")
    if not all(text.strip() for text in meta.tasks) or not len(meta.tasks):
        yield warning("a task has no text, or there are no tasks at all.")
    if "tasks" not in meta.episodes.columns:
        yield note("the episode table has no column tasks; the rows alone name them.")
        return
    listed, known = meta.episodes["tasks"], set(meta.tasks)
    if without := [e for e, texts in enumerate(listed) if not texts]:
        yield warning("the episode table names no task.", without)
    if unknown := [e for e, texts in enumerate(listed) if not known.issuperset(texts or ())]:
        yield error("the episode table names tasks that the table of tasks lacks.", unknown)


@check(why="policies normalise with them", cure=COMPUTE_STATS)
def stats_missing(tables: Tables) -> Remarks:
    """Every feature has statistics."""
    if not (stats := tables.meta.stats):
        yield warning("there are no statistics at all.")
        return
    features = tables.meta.features
    wanted = [k for k, entry in features.items() if entry["dtype"] not in NO_STATS_DTYPES]
    for key in wanted:
        if missing := [name for name in MOMENTS if name not in stats.get(key, {})]:
            is_used = is_policy_feature(key) or features[key]["dtype"] in CAMERA_DTYPES
            yield (warning if is_used else note)(f"{key} has no {', '.join(missing)}.")
    if not any("q50" in stats.get(key, {}) for key in wanted):
        yield note("there are no quantiles, which some policies normalise with.")


@check(why="normalised values are wrong everywhere", cure=COMPUTE_STATS)
def stats_wrong(tables: Tables) -> Remarks:
    """Shapes, counts and order of statistics are possible."""
    features, total = tables.meta.features, tables.meta.total_frames
    counted: dict[str, list[str]] = defaultdict(list)
    for key, entry in (tables.meta.stats or {}).items():
        if key not in features:
            yield note(f"there are statistics of {key}, which is no feature.")
            continue
        is_camera = features[key]["dtype"] in CAMERA_DTYPES
        shape = (image_shape(features[key])[0], 1, 1) if is_camera else features[key]["shape"][-1:]
        if wrong := {n: v.shape for n, v in entry.items() if n != "count" and v.shape != shape}:
            first = next(iter(wrong.values()))
            yield error(f"{key}: the shape of {', '.join(wrong)} is {first}, want {shape}.")
        else:
            yield from (error(f"{key}: {what}.") for what in _find_disorder(entry))
        most = recorded_numbers(tables.meta, key).get("max", np.zeros(1))
        if is_camera and not is_depth(features[key]) and most.max(initial=0) > 1 + _ROUNDING:
            yield warning(f"{key}: max is {most.max():g}, images are recorded from 0 to 1.")
        frames = entry.get("count", np.array([total])).ravel().tolist()
        if not is_camera and frames != [total]:
            counted[shorten(frames)].append(key)
    for number, keys in counted.items():
        yield warning(f"computed from {number} frames, there are {total}: {shorten(keys)}.")


def _find_disorder(entry: FeatureStats) -> Iterator[str]:
    if any(value.dtype.kind not in "iufb" for value in entry.values()):
        yield "a statistic is not a number"
        return
    numbers = {name: value.astype(np.float64) for name, value in entry.items()}
    if not all(np.isfinite(value).all() for value in numbers.values()):
        yield "a statistic is NaN or infinite"
        return
    names = [name for name in ("min", *QUANTILES, "max") if name in numbers]
    slack: Any = _ROUNDING * (1 + np.abs(numbers.get("max", 0) - numbers.get("min", 0)))
    for low, high in (*pairwise(names), ("min", "mean"), ("mean", "max")):
        if low in numbers and high in numbers and (numbers[low] > numbers[high] + slack).any():
            yield f"{low} is above {high}"
    if "std" in numbers and (numbers["std"] < 0).any():
        yield "std is below 0"


@check(
    why="normalising divides by it: a small change at inference becomes a huge value",
    cure="Leave the entry out, or normalise without it.",
)
def stats_zero_std(tables: Tables) -> Remarks:
    """No action or state has a deviation of 0."""
    for key, entry in (tables.meta.stats or {}).items():
        still = np.flatnonzero(entry.get("std", np.ones(1)) == 0).tolist()
        if still and is_policy_feature(key) and tables.meta.total_frames > 1:
            yield warning(f"{key}: std is 0 for the entries {shorten(still)}.")


@check(why="most of each chunk is padding", cure="Leave them out (episode_filter=).")
def short_episodes(tables: Tables) -> Remarks:
    """Episodes are at least as long as a policy's chunk of actions."""
    chunk = tables.chunk or _USUAL_CHUNK
    if (short := np.flatnonzero(tables.meta.episodes["length"] < chunk)).size:
        tell = note if tables.chunk is None else warning
        yield tell(f"fewer than {chunk} frames.", short.tolist())


@check(why="an episode gets frames of another")
def span_lengths(tables: Tables) -> Remarks:
    """The span of an episode in its video is as long as the episode."""
    table, fps = tables.meta.episodes, tables.meta.fps
    for key in tables.meta.video_keys:
        from_s, to_s = (table[f"videos/{key}/{end}_timestamp"] for end in ("from", "to"))
        frames = (to_s - from_s) * fps
        # Written with "not", so that a time that is NaN counts too.
        wrong = np.flatnonzero(~(np.abs(frames - table["length"]) <= _SLACK_FRAMES))
        if wrong.size:
            found, wanted = frames[wrong[0]], table["length"][wrong[0]]
            what = f"{key}: a span of {found:.6g} frames at {fps:g} fps for {wanted} of an episode."
            yield error(what, wrong.tolist())
