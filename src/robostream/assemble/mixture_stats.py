# SPDX-License-Identifier: Apache-2.0
"""Statistics of the datasets of a group together, by common key, and how they normalise values."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import config
from robostream.assemble.schema import ColumnMap, Schema, SourceMap
from robostream.errors import MetadataError, SelectionError
from robostream.meta import (
    DEFAULT_FEATURES,
    QUANTILES,
    FeatureStats,
    Stats,
    as_lists,
    column_stats,
    combine_stats,
)
from robostream.storage import write_bytes_atomic

logger = logging.getLogger(__name__)

Array = npt.NDArray[Any]
Affine = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Scale and shift: a normalised value is value * scale + shift."""

_MOMENTS = ("mean", "std", "min", "max")
_PADDED = {"std": 1.0}  # of a dimension that no dataset of a group has; all else is 0
_BOUNDS = {"min_max": ("min", "max"), "quantiles": ("q01", "q99")}
# A spread below this share of the value itself is the rounding of float32.
_CONSTANT = 1e-6


@dataclass(frozen=True, slots=True)
class SourceStats:
    """A source and its recorded statistics.

    Attributes:
        name: Its name, for messages.
        source_map: How its features become those of the mixture.
        stats: The statistics of its metadata.
    """

    name: str
    source_map: SourceMap
    stats: Stats | None


def pool_stats(schema: Schema, members: Sequence[SourceStats]) -> Stats:
    """Return the statistics of several sources together, in LeRobot's form. Pure but for the log.

    Mean and deviation are exact, weighted by counts. Quantiles are bounds, as in LeRobot: the
    smallest of the sources up to the median, the largest above it. A dimension or camera that no
    source has is 0 with deviation 1. A feature whose statistics some source lacks is left out.
    """
    pooled: Stats = {}
    owned = [member.source_map.parts(schema) for member in members]
    for part in (*schema.cameras, *schema.vectors):
        key, is_camera = part.key, part.dtype == "video"
        has = [(m, own[key]) for m, own in zip(members, owned, strict=True) if key in own]
        entries = [(m.stats or {}).get(column.own, {}) for m, column in has]
        lacking = [
            m.name
            for (m, _), entry in zip(has, entries, strict=True)
            if not {*_MOMENTS, "count"} <= {*entry}
        ]
        if lacking:
            logger.warning("%s: no statistics in %s; the group has none of it", key, lacking[0])
            continue
        shape = (part.shape[0], 1, 1) if is_camera else part.shape[-1:]
        pooled[key] = _pool_feature(has, entries, shape)
    return pooled


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
    wanted = ("mean", "std") if mode == "mean_std" else _BOUNDS.get(mode)
    if wanted is None:
        raise SelectionError(
            f'the mode of {key!r} must be "mean_std", "min_max" or "quantiles"; got {mode!r}'
        )
    if any(name not in entry for name in wanted):
        raise SelectionError(
            f"{mode} of {key!r} needs the statistics {' and '.join(wanted)}, which some dataset "
            "lacks. Compute them from rows."
        )
    first, second = (np.asarray(entry[name], np.float64) for name in wanted)
    is_mean = mode == "mean_std"
    centre, spread = (first, second) if is_mean else ((first + second) / 2, (second - first) / 2)
    spread = np.where(spread <= _CONSTANT * np.abs(centre), 1.0, spread)
    return (1 / spread).astype(np.float32), (-centre / spread).astype(np.float32)


def _pool_feature(
    has: Sequence[tuple[SourceStats, ColumnMap]],
    entries: Sequence[FeatureStats],
    shape: tuple[int, ...],
) -> FeatureStats:
    """Return the statistics of one feature in its common shape."""
    names = [*_MOMENTS, *(name for name in QUANTILES if all(name in e for e in entries))]
    frames = [int(entry["count"][0]) for entry in entries]
    # A group without the feature has one part without frames.
    counts, *rest = (np.zeros((max(len(has), 1), *shape)) for _ in ("count", *names))
    for number, ((member, column), entry) in enumerate(zip(has, entries, strict=True)):
        try:
            counts[number][column.place] = frames[number]
            for name, wide in zip(names, rest, strict=True):
                wide[number][column.place] = entry[name]
        except ValueError as error:
            raise MetadataError(
                f"{member.name}, {config.STATS_PATH}: the statistics of {column.own!r} do not have "
                f"the size of the feature ({error}). Restore the file, or delete it."
            ) from error
    found = combine_stats(dict(zip(names, rest, strict=True)), counts, is_partial=True)
    is_known = counts.any(axis=0)
    known = {n: np.where(is_known, v, _PADDED.get(n, 0.0)) for n, v in found.items()}
    return known | {"count": np.array([sum(frames)])}


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
