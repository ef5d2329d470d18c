# SPDX-License-Identifier: Apache-2.0
"""Statistics of a dataset, recomputed from rows; those of a mixture's groups, pooled or exact.

Exact quantiles need all values of a column at once. Columns that do not fit into the memory
together are read in several passes over the rows. No video is decoded, unless images are wanted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.cameras import CameraReader
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import RowReader
from robostream.assemble.schema import Affine, ColumnMap, Schema, SourceMap
from robostream.errors import MetadataError, SelectionError
from robostream.meta import (
    CAMERA_DTYPES,
    COLOUR,
    DEFAULT_FEATURES,
    DEPTH,
    NO_STATS_DTYPES,
    QUANTILES,
    Features,
    FeatureStats,
    Stats,
    as_lists,
    column_stats,
    combine_stats,
    image_shape,
    is_depth,
    sampled_frames,
)
from robostream.progress import Progress
from robostream.storage import write_bytes_atomic

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]
SourceStats = tuple[str, SourceMap, Stats | None]
"""A source's name, the map of its features, and the statistics of its metadata."""

# Rows read at a time.
_ROWS_AT_ONCE = 1 << 16
# Images decoded and held at a time.
_IMAGES_AT_ONCE = 32
_MOMENTS = ("mean", "std", "min", "max")
_PADDED = {"std": 1.0}  # of a dimension that no dataset of a group has; all else is 0
_MODES = {"mean_std": ("mean", "std"), "min_max": ("min", "max"), "quantiles": ("q01", "q99")}
# A spread below this share of the value itself is the rounding of float32.
_CONSTANT = 1e-6


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
    with contextlib.closing(RowReader(dataset, dataset.file_opener(), keys)) as reader:
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
            found = []
            for begin in range(0, len(frames), _IMAGES_AT_ONCE):
                for image in reader.read(key, episode, frames[begin : begin + _IMAGES_AT_ONCE]):
                    height_first = image[0] if depth else np.moveaxis(image, 0, -1)
                    found.append(kind.summarise(np.ascontiguousarray(height_first)))
            summaries.append(kind.merge(np.array(found)))
            counts.append(len(frames))
            bar.update()
    return kind.stats(np.array(summaries), counts)


def pool_stats(schema: Schema, members: Sequence[SourceStats]) -> Stats:
    """Return the statistics of several sources together, in LeRobot's form. Pure but for the log.

    Mean and deviation are exact, weighted by counts. Quantiles are bounds, as in LeRobot: the
    smallest of the sources up to the median, the largest above it. A dimension or camera that no
    source has is 0 with deviation 1. A feature whose statistics some source lacks is left out.
    """
    pooled: Stats = {}
    owned = [source_map.parts(schema) for _, source_map, _ in members]
    for part in (*schema.cameras, *schema.vectors):
        has = [
            (name, own[part.key], (stats or {}).get(own[part.key].own, {}))
            for (name, _, stats), own in zip(members, owned, strict=True)
            if part.key in own
        ]
        lacking = [name for name, _, entry in has if not {*_MOMENTS, "count"} <= {*entry}]
        if lacking:
            logger.warning(
                "%s: no statistics in %s; the group has none of it", part.key, lacking[0]
            )
            continue
        shape = (part.shape[0], 1, 1) if part.dtype == "video" else part.shape[-1:]
        pooled[part.key] = _pool_feature(has, shape)
    return pooled


def _pool_feature(
    has: Sequence[tuple[str, ColumnMap, FeatureStats]], shape: tuple[int, ...]
) -> FeatureStats:
    """Return the statistics of one feature in its common shape."""
    names = [*_MOMENTS, *(name for name in QUANTILES if all(name in e for *_, e in has))]
    # A group without the feature has one part without frames.
    counts, *rest = (np.zeros((max(len(has), 1), *shape)) for _ in ("count", *names))
    for number, (source, column, entry) in enumerate(has):
        try:
            counts[number][column.place] = int(entry["count"][0])
            for name, wide in zip(names, rest, strict=True):
                wide[number][column.place] = entry[name]
        except ValueError as error:
            raise MetadataError(
                f"{source}, {config.STATS_PATH}: the statistics of {column.own!r} do not have "
                f"the size of the feature ({error}). Restore the file, or delete it."
            ) from error
    found = combine_stats(dict(zip(names, rest, strict=True)), counts, is_partial=True)
    is_known = counts.any(axis=0)
    known = {n: np.where(is_known, v, _PADDED.get(n, 0.0)) for n, v in found.items()}
    return known | {"count": np.array([sum(int(e["count"][0]) for *_, e in has)])}


def exact_stats(
    schema: Schema, maps: Sequence[SourceMap], read: Callable[[int, str], Iterable[Array]]
) -> Stats:
    """Return statistics from the rows of several sources, quantiles too, by common key.

    Default features have none. `read` takes the place of a source in `maps` and an own key, and
    yields values with frames along the first axis. One feature is held in memory at a time.
    """
    found: Stats = {}
    owned = [source_map.parts(schema) for source_map in maps]
    for vector in schema.vectors:
        if vector.key in DEFAULT_FEATURES:
            continue
        columns = [
            (own[vector.key].dims, np.concatenate(list(read(number, own[vector.key].own))))
            for number, own in enumerate(owned)
            if vector.key in own
        ]
        found[vector.key] = _join_columns(columns, vector.shape[-1])
    return found


def cached_stats(
    content: Mapping[str, Any], compute: Callable[[], dict[str, Stats]]
) -> dict[str, Stats]:
    """Return statistics by group, from a file in the user's cache folder if they were saved.

    `content` is JSON that decides them: fingerprints, selections and maps.
    """
    text = json.dumps(content, sort_keys=True).encode()
    path = config.stats_home() / f"{hashlib.blake2b(text, digest_size=16).hexdigest()}.json"
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return {
            group: {k: {n: np.array(v) for n, v in e.items()} for k, e in stats.items()}
            for group, stats in json.loads(path.read_bytes()).items()
        }
    found = compute()
    lists = {g: {key: as_lists(entry) for key, entry in s.items()} for g, s in found.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic(path, json.dumps(lists).encode())
    except OSError as error:
        logger.warning("%s: cannot save statistics, so they are computed again: %s", path, error)
    return found


def affine(entry: FeatureStats, mode: str, key: str) -> Affine:
    """Return the scale and shift that normalise a feature. Pure.

    "mean_std" gives mean 0 and deviation 1; "min_max" and "quantiles" map the bounds (min and max,
    or q01 and q99) to -1 and 1. A constant dimension is shifted to 0 and not scaled.
    """
    wanted = _MODES.get(mode)
    if wanted is None:
        raise SelectionError(
            f'the mode of {key!r} must be "mean_std", "min_max" or "quantiles"; got {mode!r}'
        )
    if any(name not in entry for name in wanted):
        raise SelectionError(
            f"{mode} of {key!r} needs the statistics {' and '.join(wanted)}, which some dataset "
            "lacks. Compute them from rows."
        )
    centre, spread = (np.asarray(entry[name], np.float64) for name in wanted)
    if mode != "mean_std":
        centre, spread = (centre + spread) / 2, (spread - centre) / 2
    spread = np.where(spread <= _CONSTANT * np.abs(centre), 1.0, spread)
    return (1 / spread).astype(np.float32), (-centre / spread).astype(np.float32)


def _join_columns(
    columns: Sequence[tuple[tuple[int, ...] | None, Array]], size: int
) -> FeatureStats:
    """Return the statistics of each dimension over the sources that have it."""
    frames = np.array([sum(len(values) for _, values in columns)])
    if columns and all(dims is None for dims, _ in columns):
        return column_stats(np.concatenate([values for _, values in columns])) | {"count": frames}
    flat = [
        (list(dims or range(size)), values.reshape(len(values), -1)) for dims, values in columns
    ]
    names = [*_MOMENTS, *QUANTILES]
    found = {name: np.full(size, _PADDED.get(name, 0.0)) for name in names}
    for place in range(size):
        own = [values[:, dims.index(place)] for dims, values in flat if place in dims]
        if own:
            for name, value in column_stats(np.concatenate(own)).items():
                if name != "count":
                    found[name][place] = value[0]
    return found | {"count": frames}
