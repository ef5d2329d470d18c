# SPDX-License-Identifier: Apache-2.0
"""Statistics recomputed from rows: exact, quantiles too, of any selection.

Exact quantiles need all values of a column at once. Columns that do not fit into the memory
together are read in several passes over the rows. No video is decoded, unless images are wanted.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.cameras import CameraReader
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
    column_stats,
    image_shape,
    is_depth,
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
    dataset: OpenedDataset,
    *,
    images: bool = False,
    keys: Sequence[str] | None = None,
    memory_bytes: int = config.STATS_MEMORY_BYTES,
    progress: bool = False,
) -> Stats:
    """Return the statistics of all selected frames of a dataset, in LeRobot's form.

    Min, max, mean, std and quantiles are exact.

    Args:
        dataset: The dataset.
        images: Whether to decode cameras too: the frames of an episode that LeRobot samples.
        keys: The features; None for all that have statistics.
        memory_bytes: Memory for whole columns, which decides how often the rows are read.
        progress: Whether to show a progress bar.
    """
    features = dataset.meta.info.features
    wanted = _wanted_keys(features, keys, images=images)
    cameras = [key for key in wanted if features[key]["dtype"] in CAMERA_DTYPES]
    passes = _plan_passes(dataset, [key for key in wanted if key not in cameras], memory_bytes)
    total = (len(passes) + len(cameras)) * len(dataset.selection.episodes)
    found: Stats = {}
    with Progress("stats", total, "episodes", is_shown=progress) as bar:
        for names in passes:
            parts: list[dict[str, Array]] = []
            for episodes, part in read_columns(dataset, names):
                parts.append(part)
                bar.update(len(episodes))
            for key in names:
                found[key] = exact_column_stats(key, [part.pop(key) for part in parts])
        for key in cameras:
            found[key] = _camera_stats(dataset, key, bar)
    return {key: found[key] for key in wanted}


def exact_column_stats(key: str, parts: list[Array]) -> FeatureStats:
    """Return the statistics of a column's parts together; warn of values that are no numbers."""
    values = np.concatenate(parts)
    parts.clear()
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
    dataset: OpenedDataset, keys: Sequence[str]
) -> Iterator[tuple[range, dict[str, Array]]]:
    """Yield consecutive selected episodes of a file, and their numeric columns of these keys.

    Columns are checked against the metadata.
    """
    with closing(RowReader(dataset, dataset.file_opener(), keys)) as reader:
        for episodes in _runs(dataset):
            numbers = reader.read_numbers(episodes)
            yield episodes, {key: numbers[key] for key in keys}


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


def _wanted_keys(features: Features, keys: Sequence[str] | None, *, images: bool) -> list[str]:
    """Return the features to compute, in the order of the dataset."""
    known = [key for key, entry in features.items() if entry["dtype"] not in NO_STATS_DTYPES]
    if keys is None:
        return [key for key in known if images or features[key]["dtype"] not in CAMERA_DTYPES]
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise SelectionError(
            f"want features with statistics, got {', '.join(unknown)}; there are {', '.join(known)}"
        )
    return [key for key in known if key in keys]


def _plan_passes(dataset: OpenedDataset, keys: Sequence[str], memory_bytes: int) -> list[list[str]]:
    """Return the numeric features, in groups whose columns fit into the memory together."""
    groups: list[list[str]] = []
    free = 0
    for key in keys:
        entry = dataset.meta.info.features[key]
        # Rows hold floats as float32, whole numbers as int64.
        width = {"f": 4, "b": 1}.get(np.dtype(entry["dtype"]).kind, 8)
        size = dataset.selection.num_frames * math.prod(entry["shape"]) * width
        if size > free or not groups:
            groups.append([])
            free = memory_bytes
        groups[-1].append(key)
        free -= size
    return groups


def _camera_stats(dataset: OpenedDataset, key: str, bar: Progress) -> FeatureStats:
    """Return a camera's statistics from sampled frames; episodes are summarised one by one."""
    entry = dataset.meta.info.features[key]
    depth, channels = is_depth(entry), image_shape(entry)[0]
    if channels != (1 if depth else 3):
        raise SelectionError(
            f"{key}: want a camera of 3 colours, or a depth camera of 1 channel; found {channels} "
            "channels. Leave it out: name the wanted features."
        )
    kind = DEPTH if depth else COLOUR
    summaries, counts = [], []
    with CameraReader(dataset) as reader:
        lengths = dataset.selection.lengths.tolist()
        for episode, length in zip(dataset.selection.episodes.tolist(), lengths, strict=True):
            frames = sampled_frames(length).tolist()
            found = [kind.summarise(image) for image in _images(reader, key, episode, frames)]
            summaries.append(kind.merge(np.array(found)))
            counts.append(len(frames))
            bar.update()
    return kind.stats(np.array(summaries), counts)


def _images(reader: CameraReader, key: str, episode: int, frames: list[int]) -> Iterator[Array]:
    """Yield images as (height, width) of depth, or (height, width, channels)."""
    for begin in range(0, len(frames), _IMAGES_AT_ONCE):
        for image in reader.read(key, episode, frames[begin : begin + _IMAGES_AT_ONCE]):
            is_flat = len(image) == 1
            yield image[0] if is_flat else np.ascontiguousarray(np.moveaxis(image, 0, -1))
