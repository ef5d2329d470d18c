# SPDX-License-Identifier: Apache-2.0
"""The tables and statistics of v2.0 and v2.1: files of one JSON object per line.

Each episode has a data file and one video per camera, which the templates of info.json name by the
episode's number. So the table has no files in it: `load_v2_episodes` returns the columns that v3.0
would have, with the episode as the number of its files.
"""

from __future__ import annotations

import json
import logging
from array import array
from collections.abc import Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from robostream import config
from robostream.byte_sizes import format_bytes
from robostream.errors import MetadataError, MissingFileError
from robostream.meta.episodes import Column, EpisodeTable
from robostream.meta.info import DatasetInfo
from robostream.meta.parquet import TaskTable, tasks_from_arrow
from robostream.meta.stats import Stats, aggregate_stats, as_stats, parse_stats
from robostream.storage import FileOpener

logger = logging.getLogger(__name__)

# Files are read in pieces: statistics of many episodes take hundreds of megabytes.
_PIECE_BYTES = 16 * 1024**2
# Episodes whose statistics are aggregated at a time.
_STATS_AT_A_TIME = 1000
# Frames of an episode: two years at 30 per second.
_MOST_FRAMES = 1 << 31
_CURE = "Correct the line, or restore the file."


class JsonLine(NamedTuple):
    """A line of a file: where it is, for messages, and its object."""

    where: str
    values: dict[str, Any]


def load_v2_episodes(opener: FileOpener, info: DatasetInfo) -> EpisodeTable:
    """Return the episodes of episodes.jsonl, with the columns of a v3.0 table."""
    order, lengths, codes, ends = array("q"), array("q"), array("q"), array("q", [0])
    texts: dict[str, int] = {}
    where = opener.location.describe(config.V2_EPISODES_PATH)
    try:
        for line in read_json_lines(opener, config.V2_EPISODES_PATH):
            order.append(_whole_number(line, "episode_index", least=0))
            lengths.append(_whole_number(line, "length", least=1))
            tasks = line.values.get("tasks") or []
            for task in tasks if isinstance(tasks, list) else [tasks]:
                codes.append(texts.setdefault(_text(line, task, "tasks"), len(texts)))
            ends.append(len(codes))
    except MissingFileError as error:
        raise MetadataError(
            f"{where}: not found, though info.json counts {info.total_episodes} episodes. Copy the "
            "whole meta/ folder."
        ) from error
    place = np.argsort(np.asarray(order), kind="stable")
    _check_order(np.asarray(order)[place], where)
    of_episodes = pa.ListArray.from_arrays(
        pa.array(np.asarray(ends, np.int32)),
        pa.array(texts, pa.string()).take(pa.array(codes, pa.int64())),
    )
    numbers = _locate_episodes(np.asarray(lengths)[place], info)
    return EpisodeTable(numbers, {"tasks": of_episodes.take(pa.array(place))})


def load_v2_tasks(opener: FileOpener, episodes: EpisodeTable) -> TaskTable:
    """Return the texts of tasks.jsonl; without it, of the episodes, as a recorder numbers them."""
    indices, texts = [], []
    where = opener.location.describe(config.V2_TASKS_PATH)
    try:
        for line in read_json_lines(opener, config.V2_TASKS_PATH):
            indices.append(_whole_number(line, "task_index", least=0))
            texts.append(_text(line, line.values.get("task"), "task"))
    except MissingFileError:
        found = dict.fromkeys(text for row in episodes for text in row.get("tasks", ()))
        if found:
            logger.warning(
                "%s: not found; tasks are numbered as they first appear in %s",
                *(where, config.V2_EPISODES_PATH),
            )
        return TaskTable(list(found))
    columns = {"task_index": pa.array(indices, pa.int64()), "task": pa.array(texts, pa.string())}
    return tasks_from_arrow(pa.table(columns), where)


def load_v2_stats(opener: FileOpener, info: DatasetInfo) -> Stats | None:
    """Return the statistics of all episodes: of v2.1 aggregated, of v2.0 as stored."""
    # Without the file of its version, those of the other's.
    files = sorted([config.V2_STATS_PATH, config.STATS_PATH], key=lambda f: f != info.stats_path)
    for file in files:
        try:
            if file == config.V2_STATS_PATH:
                return aggregate_episode_stats(opener, info.total_episodes)
            return parse_stats(opener.read_json(file), opener.location.describe(file))
        except MissingFileError:
            continue
    logger.warning(
        "%s: the dataset has no statistics (no %s), so meta.stats is None",
        *(opener.location.describe("meta"), " and no ".join(files)),
    )
    return None


def aggregate_episode_stats(opener: FileOpener, num_episodes: int) -> Stats:
    """Return the statistics of all episodes of v2.1 together; warn of episodes without any."""
    where = opener.location.describe(config.V2_STATS_PATH)
    found = (stats for _, stats in read_episode_stats(opener, num_episodes))
    parts, count = [], 0
    try:
        while part := list(islice(found, _STATS_AT_A_TIME)):
            parts.append(aggregate_stats(part))
            count += len(part)
        whole = aggregate_stats(parts)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        if isinstance(error, MetadataError):
            raise
        raise MetadataError(
            f"{where}: want min, max, mean, std and count of each feature, in equal shapes for all "
            f"episodes ({type(error).__name__}: {error}). Restore the file, or delete it: "
            "statistics are optional."
        ) from error
    if count < num_episodes:
        logger.warning(
            "%s: %d of the %d episodes have no statistics; meta.stats are those of the others",
            *(where, num_episodes - count, num_episodes),
        )
    return whole


def read_episode_stats(opener: FileOpener, num_episodes: int) -> Iterator[tuple[int, Stats]]:
    """Yield each episode with its statistics, in the file's order; or raise MissingFileError."""
    seen = set()
    for line in read_json_lines(opener, config.V2_STATS_PATH):
        episode = _whole_number(line, "episode_index", least=0)
        if episode in seen or episode >= num_episodes:
            raise MetadataError(
                f"{line.where}: want one line for each of the {num_episodes} episodes, found "
                f"{'a second' if episode in seen else 'one'} for episode {episode}. Delete the "
                "wrong line."
            )
        seen.add(episode)
        try:
            yield episode, as_stats(line.values["stats"])
        except (KeyError, ValueError, AttributeError, RecursionError) as error:
            raise MetadataError(
                f'{line.where}: want the statistics of each feature in "stats" '
                f"({type(error).__name__}: {error}). {_CURE}"
            ) from error


def read_json_lines(opener: FileOpener, file: str) -> Iterator[JsonLine]:
    """Yield the objects of a file of JSON lines, which is read in pieces."""
    source = opener.open(file)
    size, limit = source.size(), config.decode_limit_bytes()
    if size > limit:
        raise MetadataError(
            f"{source.name}: want at most {format_bytes(limit)}, found {format_bytes(size)}. If it "
            f"is meant to be so large, set {config.DECODE_LIMIT_NAME} to more."
        )
    count, rest = 0, b""
    for start in range(0, size, _PIECE_BYTES):
        stop = min(start + _PIECE_BYTES, size)
        *lines, rest = (rest + source.read(start, stop)).split(b"\n")
        if stop == size:
            lines.append(rest)
        elif len(rest) > config.json_limit_bytes():
            raise MetadataError(
                f"{source.name}, line {count + len(lines) + 1}: want at most "
                f"{format_bytes(config.json_limit_bytes())} in a line. {_CURE}"
            )
        for number, text in enumerate(lines, count + 1):
            if text.strip():
                yield _parse_line(text, f"{source.name}, line {number}")
        count += len(lines)


def _parse_line(text: bytes, where: str) -> JsonLine:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MetadataError(f"{where}: not valid JSON ({error}). {_CURE}") from error
    if not isinstance(values, dict):
        raise MetadataError(f"{where}: want a JSON object, found {values!r:.200}. {_CURE}")
    return JsonLine(where, values)


def _whole_number(line: JsonLine, name: str, *, least: int) -> int:
    value = line.values.get(name)
    if type(value) is int and least <= value < _MOST_FRAMES:
        return value
    raise MetadataError(
        f"{line.where}: want a whole number from {least} to {_MOST_FRAMES - 1:,} as {name}, found "
        f"{value!r:.200}. {_CURE}"
    )


def _text(line: JsonLine, value: object, name: str) -> str:
    if isinstance(value, str):
        return value
    raise MetadataError(f"{line.where}: want a text as {name}, found {value!r:.200}. {_CURE}")


def _check_order(order: Column, where: str) -> None:
    """Raise MetadataError unless each episode has one line."""
    wrong = np.flatnonzero(order != np.arange(len(order)))
    if wrong.size:
        at, found = int(wrong[0]), int(order[wrong[0]])
        fault = f"two for episode {found}" if found < at else f"none for episode {at}"
        raise MetadataError(
            f"{where}: want one line for each of the episodes 0, 1, 2 ..., found {fault}. Restore "
            "the file, or number the episodes and their files again."
        )


def _locate_episodes(lengths: Column, info: DatasetInfo) -> dict[str, Column]:
    """Return the columns of v3.0 for episodes with files of their own. Pure."""
    episodes = np.arange(len(lengths))
    chunks, files = (episodes // info.chunks_size).astype(np.int32), episodes.astype(np.int32)
    stops = np.cumsum(lengths)
    columns = {
        "episode_index": episodes,
        "length": lengths,
        "data/chunk_index": chunks,
        "data/file_index": files,
        "dataset_from_index": stops - lengths,
        "dataset_to_index": stops,
    }
    spans: dict[str, Column] = {
        "chunk_index": chunks,
        "file_index": files,
        "from_timestamp": np.zeros(len(lengths)),
        "to_timestamp": lengths / info.fps,
    }
    for key in info.video_keys:
        columns |= {f"videos/{key}/{name}": column for name, column in spans.items()}
    return columns
