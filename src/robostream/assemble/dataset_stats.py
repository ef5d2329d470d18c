# SPDX-License-Identifier: Apache-2.0
"""Statistics recomputed from rows: exact, quantiles too, of any selection or several datasets.

Exact quantiles need all values of a column at once. Columns that do not fit into the memory
together are read in several passes over the rows. No video is decoded, unless images are wanted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.camera_reader import CameraReader
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import RowReader
from robostream.errors import SelectionError
from robostream.meta import (
    CAMERA_DTYPES,
    COLOUR,
    DEPTH,
    NO_STATS_DTYPES,
    Features,
    FeatureStats,
    Stats,
    colour_stats,
    column_stats,
    depth_stats,
    image_shape,
    is_depth,
    merge_depth,
    sampled_frames,
)
from robostream.progress import Progress

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]

# Rows read at a time.
_ROWS_AT_ONCE = 1 << 16
# Images decoded and held at a time.
_IMAGES_AT_ONCE = 32


def compute_stats(
    datasets: Sequence[OpenedDataset],
    *,
    images: bool = False,
    keys: Sequence[str] | None = None,
    memory_bytes: int = config.STATS_MEMORY_BYTES,
    progress: bool = False,
) -> Stats:
    """Return the statistics of all selected frames of some datasets together, in LeRobot's form.

    Min, max, mean, std and quantiles are exact. A feature that some of the datasets lack has the
    statistics of the others.

    Args:
        datasets: The datasets; each with its own selection of episodes.
        images: Whether to decode cameras too: the frames of an episode that LeRobot samples.
        keys: The features; None for all that have statistics.
        memory_bytes: Memory for whole columns, which decides how often the rows are read.
        progress: Whether to show a progress bar.
    """
    features = _join_features(datasets)
    wanted = _wanted_keys(features, keys, images=images)
    cameras = [key for key in wanted if features[key]["dtype"] in CAMERA_DTYPES]
    passes = _plan_passes(datasets, wanted, memory_bytes)
    rounds = len(passes) + len(cameras)
    total = rounds * sum(len(dataset.selection.episodes) for dataset in datasets)
    found: Stats = {}
    with Progress("stats", total, "episodes", is_shown=progress) as bar:
        for names in passes:
            columns = StatsCollector()
            for episodes, part in read_columns(datasets, names):
                columns.add(part)
                bar.update(len(episodes))
            found |= columns.stats()
        for key in cameras:
            found[key] = _camera_stats(datasets, key, bar)
    return {key: found[key] for key in wanted}


class StatsCollector:
    """Collects columns part by part, such as episode by episode, and reduces them at the end."""

    def __init__(self) -> None:
        self._parts: dict[str, list[Array]] = {}

    def add(self, columns: Mapping[str, Array]) -> None:
        """Add frames: arrays by feature, frames along their first axis."""
        for key, values in columns.items():
            self._parts.setdefault(key, []).append(values)

    def stats(self) -> Stats:
        """Return the statistics of everything added, and forget it."""
        return {key: self._reduce(key) for key in list(self._parts)}

    def _reduce(self, key: str) -> FeatureStats:
        values = np.concatenate(self._parts.pop(key))
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            frames = (~np.isfinite(values)).reshape(len(values), -1).any(axis=1).sum()
            logger.warning(
                "%s: %d of %d frames have a value that is NaN or infinite, and so do its "
                "statistics. Leave those episodes out, or repair them.",
                *(key, frames, len(values)),
            )
        with np.errstate(invalid="ignore"):  # infinity minus infinity
            return column_stats(values)


def read_columns(
    datasets: Sequence[OpenedDataset], keys: Sequence[str]
) -> Iterator[tuple[range, dict[str, Array]]]:
    """Yield consecutive selected episodes of a file, and their numeric columns of these keys.

    Columns are checked against the metadata; keys that a dataset lacks are left out.
    """
    for dataset in datasets:
        own = [key for key in keys if key in dataset.meta.features]
        with closing(RowReader(dataset, dataset.file_opener(), own)) as reader:
            for episodes in _runs(dataset):
                numbers = reader.read_numbers(episodes)
                yield episodes, {key: numbers[key] for key in own}


def _runs(dataset: OpenedDataset) -> Iterator[range]:
    """Yield the selected episodes in runs: consecutive, of one file, of bounded length."""
    meta, selection = dataset.meta, dataset.selection
    first = stop = rows = 0
    path = None
    for episode, length in zip(
        selection.episodes.tolist(), selection.lengths.tolist(), strict=True
    ):
        own_path = meta.get_data_file_path(episode)
        if episode != stop or own_path != path or rows + length > _ROWS_AT_ONCE:
            if rows:
                yield range(first, stop)
            first, rows, path = episode, 0, own_path
        stop = episode + 1
        rows += length
    yield range(first, stop)


def _join_features(datasets: Sequence[OpenedDataset]) -> Features:
    """Return the features of all datasets; raise if two disagree about the shape of one."""
    seen: dict[str, tuple[dict[str, Any], str]] = {}
    for dataset in datasets:
        name = dataset.meta.repo_id
        for key, entry in dataset.meta.info.features.items():
            known, owner = seen.setdefault(key, (entry, name))
            if known["shape"] != entry["shape"] and entry["dtype"] not in CAMERA_DTYPES:
                raise SelectionError(
                    f"{key} has the shape {known['shape']} in {owner} and {entry['shape']} in "
                    f"{name}, so they have no statistics in common. Compute them one by one, or "
                    "name other features."
                )
    return {key: entry for key, (entry, _) in seen.items()}


def _wanted_keys(features: Features, keys: Sequence[str] | None, *, images: bool) -> list[str]:
    """Return the features to compute, in the order of the dataset."""
    known = [key for key, entry in features.items() if entry["dtype"] not in NO_STATS_DTYPES]
    if keys is None:
        return [key for key in known if images or features[key]["dtype"] not in CAMERA_DTYPES]
    if unknown := [key for key in keys if key not in known]:
        raise SelectionError(
            f"want features with statistics, got {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return [key for key in known if key in keys]


def _plan_passes(
    datasets: Sequence[OpenedDataset], keys: Sequence[str], memory_bytes: int
) -> list[list[str]]:
    """Return the numeric features, in groups whose columns fit into the memory together."""
    groups: list[list[str]] = []
    free = 0
    for key in keys:
        size = sum(_column_bytes(dataset, key) for dataset in datasets)
        if not size:
            continue
        if size > free:
            groups.append([])
            free = memory_bytes
        groups[-1].append(key)
        free -= size
    return groups


def _column_bytes(dataset: OpenedDataset, key: str) -> int:
    """Return the bytes of a numeric column of all selected frames, 0 for a camera."""
    entry = dataset.meta.info.features.get(key)
    if entry is None or entry["dtype"] in CAMERA_DTYPES:
        return 0
    # Rows hold floats as float32, whole numbers as int64.
    width = {"f": 4, "b": 1}.get(np.dtype(entry["dtype"]).kind, 8)
    return int(dataset.selection.num_frames * math.prod(entry["shape"]) * width)


def _camera_stats(datasets: Sequence[OpenedDataset], key: str, bar: Progress) -> FeatureStats:
    """Return a camera's statistics from sampled frames; episodes are summarised one by one."""
    own = [dataset for dataset in datasets if key in dataset.meta.features]
    kinds = {is_depth(dataset.meta.info.features[key]) for dataset in own}
    channels = {image_shape(dataset.meta.info.features[key])[0] for dataset in own}
    if len(kinds) > 1 or channels != {1 if kinds == {True} else 3}:
        raise SelectionError(
            f"{key}: want a camera of 3 colours, or a depth camera of 1 channel, in all datasets; "
            f"found {sorted(channels)} channels. Leave it out: name the wanted features."
        )
    (depth,) = kinds
    summaries, counts = [], []
    for dataset in own:
        with CameraReader(dataset) as reader:
            lengths = dataset.selection.lengths.tolist()
            for episode, length in zip(dataset.selection.episodes.tolist(), lengths, strict=True):
                frames = sampled_frames(length).tolist()
                found = np.array(list(_summaries(reader, key, episode, frames, depth=depth)))
                summaries.append(merge_depth(found) if depth else found.sum(0, dtype=np.int64))
                counts.append(len(frames))
                bar.update()
    if depth:
        return depth_stats(np.array(summaries), counts)
    return colour_stats(np.array(summaries)) | {"count": np.array([sum(counts)])}


def _summaries(
    reader: CameraReader, key: str, episode: int, frames: list[int], *, depth: bool
) -> Iterator[Array]:
    for begin in range(0, len(frames), _IMAGES_AT_ONCE):
        for image in reader.read(key, episode, frames[begin : begin + _IMAGES_AT_ONCE]):
            pixels = image[0] if depth else np.ascontiguousarray(np.moveaxis(image, 0, -1))
            yield (DEPTH if depth else COLOUR).summarise(pixels)
