# SPDX-License-Identifier: Apache-2.0
"""All rows, read and checked: times, values, statistics, leakage between selections."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from robostream.assemble import RowReader
from robostream.config import TOLERANCE_S
from robostream.errors import DatasetError, StorageError
from robostream.meta import (
    CAMERA_DTYPES,
    DEFAULT_FEATURES,
    QUANTILES,
    LeRobotDatasetMetadata,
    Stats,
    aggregate_stats,
)
from robostream.tools.doctor.files import DatasetFiles, ListedFile
from robostream.tools.doctor.findings import Item, Remarks, check, error, note, shorten, warning
from robostream.tools.doctor.tables import COMPUTE_STATS, is_policy_feature, recorded_numbers

# Seconds since 1970 are more; no episode lasts so long.
_WALL_CLOCK_S = 1e8
# Statistics may differ from the rows' by this share of the range, quantiles by this share of rows.
_STALE = 0.01
_QUANTILE_SLACK = 0.02


@dataclass(frozen=True, slots=True)
class EpisodeContent(Item):
    """The numbers in the rows of one episode by feature; none, and why, if they are unreadable."""

    level: ClassVar[str] = "rows"
    listed: ListedFile
    numbers: Mapping[str, npt.NDArray[Any]]
    problem: str = ""

    @property
    def episode(self) -> int:
        """The only episode that is listed."""
        return int(self.listed.episodes[0])


@dataclass(frozen=True, slots=True)
class EpisodeSummary:
    """What is kept of an episode's rows."""

    episode: int
    stats: Stats  # moments of each feature
    # By (feature, quantile): how many values are below the recorded one, and up to it.
    ranks: Mapping[tuple[str, str], npt.NDArray[np.int64]]
    digest: str  # A digest of actions and states


@dataclass(frozen=True, slots=True)
class AllRows(Item):
    """The summaries of all episodes whose rows were read, and selections that must be apart."""

    level: ClassVar[str] = "rows"
    meta: LeRobotDatasetMetadata
    summaries: Sequence[EpisodeSummary]
    selections: Mapping[str, Sequence[int]]


def read_rows(files: DatasetFiles, listed: ListedFile) -> Iterator[EpisodeContent]:
    """Yield the rows of each episode in a file."""
    features = files.meta.features
    keys = [key for key, entry in features.items() if entry["dtype"] not in CAMERA_DTYPES]
    with closing(RowReader(files.dataset, files.opener, keys)) as reader:
        for episode in listed.episodes.tolist():
            own = replace(listed, episodes=np.array([episode]))
            try:
                yield EpisodeContent(own, reader.read(episode).numbers)
            except (DatasetError, StorageError) as failure:
                yield EpisodeContent(own, {}, str(failure))


def summarise(content: EpisodeContent) -> EpisodeSummary | None:
    """Return what is kept of an episode's rows; None if they cannot be read. Pure."""
    stats, ranks = {}, {}
    digest = hashlib.blake2b(digest_size=16)
    for key, values in sorted(content.numbers.items()):
        flat = values.reshape(-1, values.shape[-1] if values.ndim > 1 else 1).astype(np.float64)
        with np.errstate(invalid="ignore"):  # NaN and infinite values are another check's
            moments = [flat.min(0), flat.max(0), flat.mean(0), flat.std(0), np.array([len(values)])]
        stats[key] = dict(zip(("min", "max", "mean", "std", "count"), moments, strict=True))
        for name, wanted in recorded_numbers(content.listed.meta, key).items():
            if name in QUANTILES and wanted.shape == flat.shape[1:]:
                ranks[key, name] = np.stack([(flat < wanted).sum(0), (flat <= wanted).sum(0)])
        if is_policy_feature(key):
            digest.update(values.tobytes())
    summary = EpisodeSummary(content.episode, stats, ranks, digest.hexdigest())
    return summary if content.numbers else None


@check(why="the episode cannot be loaded")
def rows(content: EpisodeContent) -> Remarks:
    """The rows of each episode can be read, and are its frames in order."""
    if content.problem:
        yield error(content.problem)
    else:
        index = content.numbers["index"]
        first = int(content.listed.meta.episodes["dataset_from_index"][content.episode])
        if (index != first + np.arange(len(index))).any():
            yield error("the column index does not count on.")


@check(
    why="frames of the video are found by these times, and actions are taken to be 1 / fps apart",
    cure="Correct fps in info.json, or write the times again as frame_index / fps.",
)
def times(content: EpisodeContent) -> Remarks:
    """Timestamps are frame_index / fps."""
    if content.problem:
        return
    fps, times_s = content.listed.meta.fps, content.numbers["timestamp"].astype(np.float64)
    wanted_s = np.arange(len(times_s)) / fps
    if (np.abs(times_s - wanted_s) <= TOLERANCE_S + np.spacing(np.float32(wanted_s))).all():
        return
    steps_s = np.diff(times_s, prepend=times_s[0] - 1 / fps)
    if times_s[0] > _WALL_CLOCK_S:
        kind = "are those of a wall clock, not seconds since the episode began"
    elif steps_s.min() <= 0:
        kind = "do not ascend"
    elif steps_s[1:].max(initial=0) <= 1.02 * steps_s[1:].min(initial=np.inf):
        rate = 1 / steps_s[1:].mean()
        is_late = abs(rate - fps) < 0.01 * fps
        kind = f"are those of {rate:.4g} fps, info.json says {fps:g}"
        kind = f"begin at {times_s[0]:.6g} s, not at 0" if is_late else kind
    else:
        kind = "have gaps" if steps_s.max() > 1.5 / fps else "are not even"
    yield error(f"the timestamps {kind}.")


@check(
    why="one of them makes the loss NaN, and with it all weights",
    cure="Leave the episodes out, or repair the values.",
)
def not_finite(content: EpisodeContent) -> Remarks:
    """No value is NaN or infinite."""
    for key, values in content.numbers.items():
        if not np.isfinite(values).all():
            yield error(f"values of {key} are NaN or infinite.")


@check(why="a policy learns the wrong instruction")
def row_tasks(content: EpisodeContent) -> Remarks:
    """The rows of an episode have the tasks that the episode table names."""
    meta, numbers = content.listed.meta, content.numbers.get("task_index", np.zeros(0, np.int64))
    named = meta.episodes[content.episode].get("tasks")
    found = {meta.tasks[n] for n in np.unique(numbers).tolist() if 0 <= n < len(meta.tasks)}
    if named and not found <= set(named):
        yield warning("the rows have other tasks than the table names.")


def _aggregate(content: AllRows) -> Iterator[tuple[str, Any, Any]]:
    """Yield each feature with the statistics of all rows and the recorded ones."""
    is_whole = len(content.summaries) == len(content.meta.episodes)
    with np.errstate(invalid="ignore"):  # infinite values are another check's
        found = aggregate_stats([one.stats for one in content.summaries]) if is_whole else {}
    for key, entry in found.items():
        yield key, entry, recorded_numbers(content.meta, key)


@check(why="a policy learns nothing from it", cure="Check the sensor; leave it out.")
def constant(content: AllRows) -> Remarks:
    """Every entry of actions and states varies."""
    for key, found, _ in _aggregate(content):
        still = np.flatnonzero(found["min"] == found["max"]).tolist()
        if still and is_policy_feature(key) and found["count"][0] > 1:
            yield warning(f"{key}: the entries {shorten(still)} never change.")


@check(why="values are normalised with those of other data", cure=COMPUTE_STATS)
def stats_stale(content: AllRows) -> Remarks:
    """Statistics are those of the rows."""
    for key, found, recorded in _aggregate(content):
        slack = _STALE * (found["max"] - found["min"]) + 1e-6
        for name in ("min", "max", "mean", "std"):
            value = recorded.get(name, found[name])
            if value.shape == slack.shape and (np.abs(value - found[name]) > slack).any():
                at = int(np.argmax(np.abs(value - found[name]) - slack))
                new, old = found[name][at], value[at]
                # LeRobot leaves those of numbers that it counts anew when it edits a dataset.
                tell = note if key in DEFAULT_FEATURES else warning
                yield tell(f"{key}: {name} of entry {at} is {new:.6g}, recorded {old:.6g}.")
                break


@check(why="normalising with them clips or stretches values", cure=COMPUTE_STATS)
def quantiles(content: AllRows) -> Remarks:
    """Quantiles are exact, not averages over episodes."""
    total = sum(int(content.meta.episodes["length"][one.episode]) for one in content.summaries)
    ranks: dict[tuple[str, str], Any] = defaultdict(int)
    for summary in content.summaries:
        for place, found in summary.ranks.items():
            ranks[place] += found
    wrong = []
    for (key, name), (below, upto) in ranks.items():
        low, high = (total * (QUANTILES[name] + sign * _QUANTILE_SLACK) + sign for sign in (-1, 1))
        if is_policy_feature(key) and ((below > high) | (upto < low)).any():
            wrong.append(f"{key} {name}")
    if wrong:
        yield note(f"not exact: {shorten(wrong)}. Recorders average them, or take the widest.")


@check(
    why="an evaluation on an episode that was trained on says nothing",
    cure="Put all copies of a recording into one selection.",
)
def leakage(content: AllRows) -> Remarks:
    """No recording is in two selections."""
    names: dict[str, set[str]] = defaultdict(set)
    copies: dict[str, list[int]] = defaultdict(list)
    for summary in content.summaries:
        episode, selections = summary.episode, content.selections
        copies[summary.digest].append(episode)
        names[summary.digest].update(name for name, of in selections.items() if episode in of)
    leaking = sorted(e for digest, same in copies.items() if len(names[digest]) > 1 for e in same)
    doubled = sorted(e for same in copies.values() if len(same) > 1 for e in same)
    if leaking:
        yield error(f"in more than one of {', '.join(content.selections)}.", leaking)
    elif doubled:
        yield note("the same recording is there more than once.", doubled)
