# SPDX-License-Identifier: Apache-2.0
"""The schema of a mixture, derived from its sources' features and the user's options."""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from robostream.assemble.dimensions import OwnFeature, align, check_kind, own_features
from robostream.assemble.schema import (
    ColumnMap,
    FeatureSchema,
    Schema,
    SchemaOptions,
    SourceFeatures,
    SourceMap,
)
from robostream.assemble.spec import Offsets, nearest_offsets, parse_size, parse_windows
from robostream.errors import SelectionError
from robostream.meta import image_shape

logger = logging.getLogger(__name__)

ByKey = dict[str, list[OwnFeature]]
"""The features of the sources that have a common key, in the order of sources."""
Windows = dict[str, dict[str, list[Any]]]
"""The steps of windows by argument and common key."""


def derive_schema(
    described: Sequence[SourceFeatures], options: SchemaOptions
) -> tuple[Schema, list[SourceMap]]:
    """Return the schema of a mixture and the map of each source, or raise SelectionError.

    Pure but for the log.
    """
    by_key: ByKey = {}
    for number, source in enumerate(described):
        for feature in own_features(number, source.name, source.features, source.feature_map):
            by_key.setdefault(feature.common, []).append(feature)
    sizes, names = options.listed_cameras, options.listed_features
    kept, count = _keep_listed(by_key, sizes, names), len(described)
    owned: list[dict[str, OwnFeature]] = [{} for _ in described]
    columns: list[list[ColumnMap]] = [[] for _ in described]
    cameras, vectors = [], []
    for key, found in kept.items():
        check_kind(found)
        for feature in found:
            owned[feature.number][key] = feature
    for key, found in kept.items():
        if found[0].is_camera:
            cameras.append(_merge_camera(found, sizes or {}, count))
        elif not found[0].is_text:
            vectors.append(_align_vector(found, names.get(key), columns))
    texts = _shared_texts(kept, count)
    windows = _parse_windows(kept, options)
    steps = {key: len(offsets) for by_key in windows.values() for key, offsets in by_key.items()}
    schema = Schema(tuple(cameras), tuple(vectors), tuple(texts), steps)
    _check_masks(schema)
    maps = [
        _map_source(own, tuple(columns[n]), schema, _offsets(described[n], own, windows, options))
        for n, own in enumerate(owned)
    ]
    if options.schema == "auto":
        logger.info("every sample has\n%s", schema.describe())
    return schema, maps


def _keep_listed(
    by_key: ByKey, cameras: Mapping[str, Any] | None, features: Mapping[str, Any]
) -> ByKey:
    """Return the features that an explicit schema does not leave out."""
    for part, names in (("cameras", cameras or {}), ("features", features)):
        for key in names:
            found = by_key.get(key)
            if found is None or found[0].is_camera != (part == "cameras"):
                fitting = [k for k in by_key if by_key[k][0].is_camera == (part == "cameras")]
                near = difflib.get_close_matches(str(key), fitting, 1)
                hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(fitting)}."
                raise SelectionError(f"schema[{part!r}] lists {key!r}, which no source has. {hint}")
    left_out = [key for key, names in features.items() if names is None]
    if cameras is not None:
        left_out += [k for k, found in by_key.items() if found[0].is_camera and k not in cameras]
    if left_out:
        logger.info("the schema leaves out %s", ", ".join(left_out))
    order = [*(cameras or ()), *by_key]
    return {key: by_key[key] for key in dict.fromkeys(order) if key not in left_out}


def _merge_camera(
    found: Sequence[OwnFeature], sizes: Mapping[str, Any], count: int
) -> FeatureSchema:
    """Return a camera of the listed size, or else of the smallest among its sources."""
    first, key = found[0], found[0].common
    shapes = [image_shape(feature.entry) for feature in found]
    for feature, shape in zip(found, shapes, strict=True):
        if shape[0] != shapes[0][0]:
            raise SelectionError(
                f"camera {key!r} has {shapes[0][0]} channels in {first.source!r} and {shape[0]} in "
                f"{feature.source!r}. Give one of them another key: {feature.another_key}."
            )
    channels, height, width = min(shapes, key=lambda shape: shape[1] * shape[2])
    if sizes.get(key) is not None:
        height, width = parse_size(sizes[key], f"schema['cameras'][{key!r}]")
    shape, is_partial = (channels, height, width), len(found) < count
    return FeatureSchema(key, "video", shape, None, is_partial, first.kind == "depth camera")


def _align_vector(
    found: Sequence[OwnFeature], listed: tuple[str, ...] | None, columns: list[list[ColumnMap]]
) -> FeatureSchema:
    """Return a numeric feature; append the column of each source that has it to `columns`."""
    key, (shape, names, places) = found[0].common, align(found, listed)
    if names is None and len(found) > 1 and math.prod(shape) > 1:
        logger.warning(
            "%s: no source names its dimensions, and all have the shape %s, so they are taken "
            "to mean the same. If they do not, name them in a feature_map.",
            *(key, shape),
        )
    for feature, place in zip(found, places, strict=True):
        columns[feature.number].append(ColumnMap(feature.own, key, place))
    is_padded = len(found) < len(columns) or any(feature.shape != shape for feature in found)
    return FeatureSchema(key, found[0].kind, shape, names, is_padded)


def _shared_texts(kept: ByKey, count: int) -> list[str]:
    counts = {key: len(found) for key, found in kept.items() if found[0].is_text}
    partial = [key for key in counts if counts[key] < count]
    if partial:
        logger.info("left out, because some sources lack them: %s", ", ".join(partial))
    return [key for key in counts if key not in partial]


def _parse_windows(kept: ByKey, options: SchemaOptions) -> Windows:
    """Return the steps of each window by argument and common key, or raise SelectionError."""
    texts = {key: found[0].is_text for key, found in kept.items()}
    missing = "no source has. Common keys are"
    given = {"delta_timestamps": options.delta_timestamps, "delta_indices": options.delta_indices}
    return {name: parse_windows(name, given[name], texts, missing) for name in given}


def _offsets(
    source: SourceFeatures, own: Mapping[str, OwnFeature], windows: Windows, options: SchemaOptions
) -> dict[str, Offsets]:
    """Return the frame offsets of a source's windows by own key, or raise for its rate."""
    steps, seconds = windows["delta_indices"], windows["delta_timestamps"]
    found = {own[key].own: np.array(steps[key], np.int64) for key in steps if key in own}
    for key in (key for key in seconds if key in own):
        deltas = np.array(seconds[key], np.float64)
        found[own[key].own], off = nearest_offsets(deltas, source.fps, options.tolerance_s)
        if off.any() and not (options.resample and np.isfinite(deltas).all()):
            raise SelectionError(
                f"delta_timestamps[{key!r}] asks for {deltas[off][0]:g} s, which is no multiple of "
                f"1/fps = {1 / source.fps:.6g} s of {source.name!r} within tolerance_s = "
                f'{options.tolerance_s}. Pass resample="nearest" to take its nearest frames, or '
                "give the window in frames with delta_indices."
            )
    return found


def _map_source(
    own: Mapping[str, OwnFeature],
    columns: tuple[ColumnMap, ...],
    schema: Schema,
    windows: Mapping[str, Offsets],
) -> SourceMap:
    cameras = [own.get(camera.key) for camera in schema.cameras]
    return SourceMap(
        columns=columns,
        cameras=tuple(None if camera is None else camera.own for camera in cameras),
        texts=tuple(own[key].own for key in schema.texts),
        windows=windows,
        sizes={
            camera.own: (common.shape[1], common.shape[2])
            for common, camera in zip(schema.cameras, cameras, strict=True)
            if camera is not None and image_shape(camera.entry) != common.shape
        },
    )


def _check_masks(schema: Schema) -> None:
    """Raise SelectionError if a feature has the key of a mask."""
    keys = {*schema.features, *schema.texts}
    masks = [*schema.masks, *(f"{key}_is_pad" for key in schema.windows)]
    taken = [mask for mask in masks if mask in keys]
    if taken:
        raise SelectionError(
            f"a source has a feature named {taken[0]!r}, which is also the name of a mask of the "
            "mixture. Give it another key in the source's feature_map."
        )
