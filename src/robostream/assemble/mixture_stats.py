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
from robostream.assemble.schema import Schema, SourceMap
from robostream.errors import MetadataError, SelectionError
from robostream.meta import DEFAULT_FEATURES, QUANTILES, FeatureStats, Stats, as_lists, column_stats
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
    for number, camera in enumerate(schema.cameras):
        parts = [
            _Part(m, own, None)
            for m in members
            if (own := m.source_map.cameras[number]) is not None
        ]
        _add(pooled, camera.key, parts, (camera.shape[0], 1, 1))
    for vector in schema.vectors:
        parts = [
            _Part(m, column.own, column.dims)
            for m in members
            for column in m.source_map.columns
            if column.common == vector.key
        ]
        _add(pooled, vector.key, parts, vector.shape[-1:])
    return pooled


def exact_stats(
    schema: Schema,
    maps: Sequence[SourceMap],
    read: Callable[[int, str], Iterable[Array]],
) -> Stats:
    """Return statistics from the rows of several sources, quantiles too, by common key.

    Default features have none. `read` takes the place of a source in `maps` and an own key, and
    yields values with frames along the first axis. One feature is held in memory at a time.
    """
    found: Stats = {}
    for vector in schema.vectors:
        if vector.key in DEFAULT_FEATURES:
            continue
        columns = [
            (column.dims, np.concatenate(list(read(number, column.own))))
            for number, source_map in enumerate(maps)
            for column in source_map.columns
            if column.common == vector.key
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


class _Part:
    """A source's statistics of one feature, spread over the common dimensions."""

    def __init__(self, member: SourceStats, own: str, dims: tuple[int, ...] | None) -> None:
        self.name, self.own = member.name, own
        self.entry: FeatureStats = (member.stats or {}).get(own, {})
        self._place: Any = ... if dims is None else list(dims)

    def spread(self, value: npt.ArrayLike, shape: tuple[int, ...]) -> Array:
        """Return a statistic in the common shape, 0 where this source has no dimension."""
        wide = np.zeros(shape)
        try:
            wide[self._place] = value
        except ValueError as error:
            raise MetadataError(
                f"{self.name}, {config.STATS_PATH}: the statistics of {self.own!r} do not have the "
                f"size of the feature ({error}). Restore the file, or delete it."
            ) from error
        return wide


def _add(pooled: Stats, key: str, parts: Sequence[_Part], shape: tuple[int, ...]) -> None:
    """Add the statistics of a feature, unless some source lacks them."""
    lacking = [part.name for part in parts if not {*_MOMENTS, "count"} <= {*part.entry}]
    if lacking:
        logger.warning("%s: no statistics in %s; the group has none of it", key, lacking[0])
        return
    counts = np.array([int(part.entry["count"][0]) for part in parts])
    weights = np.array([p.spread(count, shape) for p, count in zip(parts, counts, strict=True)])
    names = [*_MOMENTS, *(name for name in QUANTILES if all(name in p.entry for p in parts))]
    values = {n: np.array([p.spread(p.entry[n], shape) for p in parts]) for n in names}
    if not parts:  # no source of the group has it
        weights = np.zeros((1, *shape))
        values = {name: np.zeros((1, *shape)) for name in values}
    total = weights.sum(axis=0)
    share = weights / np.maximum(total, 1)
    mean = (values["mean"] * share).sum(axis=0)
    square = ((values["std"] ** 2 + (values["mean"] - mean) ** 2) * share).sum(axis=0)
    found = {"mean": mean, "std": np.sqrt(square)}
    for name in names:
        if name not in found:
            is_low = name == "min" or QUANTILES.get(name, 1.0) <= 0.5
            masked = np.where(weights > 0, values[name], np.inf if is_low else -np.inf)
            found[name] = masked.min(axis=0) if is_low else masked.max(axis=0)
    pooled[key] = {n: np.where(total > 0, v, _PADDED.get(n, 0.0)) for n, v in found.items()}
    pooled[key]["count"] = np.array([counts.sum()])


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
