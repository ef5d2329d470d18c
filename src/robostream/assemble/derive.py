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
    CameraSchema,
    ColumnMap,
    Schema,
    SchemaOptions,
    SourceFeatures,
    SourceMap,
    VectorSchema,
)
from robostream.assemble.spec import Offsets, nearest_offsets, parse_size
from robostream.errors import SelectionError
from robostream.meta import image_shape

logger = logging.getLogger(__name__)

ByKey = dict[str, list[OwnFeature]]
"""The features of the sources that have a common key, in the order of sources."""
Dims = list[dict[str, tuple[int, ...] | None]]
"""For each source the places of its dimensions, by common key."""


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
    kept = _keep_listed(by_key, sizes, names)
    for found in kept.values():
        check_kind(found)
    cameras = {key: found for key, found in kept.items() if found[0].is_camera}
    texts = {key: found for key, found in kept.items() if found[0].is_text}
    numbers = {k: found for k, found in kept.items() if k not in cameras and k not in texts}
    vectors, dims = _align_vectors(numbers, names, len(described))
    schema = Schema(
        tuple(_merge_camera(found, sizes or {}, len(described)) for found in cameras.values()),
        tuple(vectors),
        tuple(_shared_texts(texts, len(described))),
        _count_steps(kept, options),
    )
    _check_masks(schema)
    owned: list[dict[str, OwnFeature]] = [{} for _ in described]
    for key, found in kept.items():
        for feature in found:
            owned[feature.number][key] = feature
    maps = [
        _map_source(own, places, schema, _offsets(source, own, options))
        for source, own, places in zip(described, owned, dims, strict=True)
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
) -> CameraSchema:
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
    is_depth = first.kind == "depth camera"
    return CameraSchema(key, (channels, height, width), is_depth, len(found) < count)


def _align_vectors(
    numbers: ByKey, listed: Mapping[str, Any], count: int
) -> tuple[list[VectorSchema], Dims]:
    vectors: list[VectorSchema] = []
    dims: Dims = [{} for _ in range(count)]
    for key, found in numbers.items():
        shape, names, places = align(found, listed.get(key))
        if names is None and len(found) > 1 and math.prod(shape) > 1:
            logger.warning(
                "%s: no source names its dimensions, and all have the shape %s, so they are taken "
                "to mean the same. If they do not, name them in a feature_map.",
                *(key, shape),
            )
        for feature, place in zip(found, places, strict=True):
            dims[feature.number][key] = place
        is_padded = len(found) < count or any(feature.shape != shape for feature in found)
        vectors.append(VectorSchema(key, shape, found[0].kind, names, is_padded))
    return vectors, dims


def _shared_texts(texts: ByKey, count: int) -> list[str]:
    partial = [key for key, found in texts.items() if len(found) < count]
    if partial:
        logger.info("left out, because some sources lack them: %s", ", ".join(partial))
    return [key for key in texts if key not in partial]


def _count_steps(kept: ByKey, options: SchemaOptions) -> dict[str, int]:
    """Return the steps of each window, or raise for one of a feature that cannot have it."""
    steps: dict[str, int] = {}
    for argument, windows in options.windows.items():
        for key, deltas in windows.items():
            if key not in kept:
                raise SelectionError(
                    f"{argument} asks for {key!r}, which no source has. Common keys are "
                    f"{', '.join(kept)}"
                )
            if kept[key][0].is_text:
                raise SelectionError(f"{argument} asks for {key!r}, but texts have no windows")
            steps[key] = len(deltas)
    return steps


def _offsets(
    source: SourceFeatures, own: Mapping[str, OwnFeature], options: SchemaOptions
) -> dict[str, Offsets]:
    """Return the frame offsets of a source's windows by own key, or raise for its rate."""
    steps, seconds = options.windows["delta_indices"], options.windows["delta_timestamps"]
    windows = {own[key].own: np.array(steps[key], np.int64) for key in steps if key in own}
    for key in (key for key in seconds if key in own):
        deltas = np.array(seconds[key], np.float64)
        windows[own[key].own], off = nearest_offsets(deltas, source.fps, options.tolerance_s)
        if off.any() and not (options.resample and np.isfinite(deltas).all()):
            raise SelectionError(
                f"delta_timestamps[{key!r}] asks for {deltas[off][0]:g} s, which is no multiple of "
                f"1/fps = {1 / source.fps:.6g} s of {source.name!r} within tolerance_s = "
                f'{options.tolerance_s}. Pass resample="nearest" to take its nearest frames, or '
                "give the window in frames with delta_indices."
            )
    return windows


def _map_source(
    own: Mapping[str, OwnFeature],
    places: Mapping[str, tuple[int, ...] | None],
    schema: Schema,
    windows: Mapping[str, Offsets],
) -> SourceMap:
    cameras = [own.get(camera.key) for camera in schema.cameras]
    return SourceMap(
        columns=tuple(ColumnMap(own[key].own, key, place) for key, place in places.items()),
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
