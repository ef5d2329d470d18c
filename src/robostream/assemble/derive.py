# SPDX-License-Identifier: Apache-2.0
"""The schema of a mixture, derived from its sources' features and the user's options.

Features under one key are of one kind, and their dimensions are aligned by name.
"""

from __future__ import annotations

import difflib
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream import arguments
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
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, image_shape, is_depth, shorten_names

logger = logging.getLogger(__name__)

_TEXTS = ("string", "language")
_SAMPLE_DTYPES = {"b": "bool", "f": "float32", "i": "int64", "u": "int64"}
_MOST_NAMES_SHOWN = 12
_MISSING = "no source has. Common keys are"


@dataclass(frozen=True, slots=True)
class OwnFeature:
    """A feature of one source."""

    number: int  # the number of the source, from 0
    source: str
    own: str  # its key in that dataset
    common: str  # its key in the mixture
    kind: str  # "camera", "depth camera", "string", "language", or the dtype of numbers in a sample
    entry: Mapping[str, Any]  # the entry of info.json
    shape: tuple[int, ...]  # the declared shape; (1,) is a plain number
    names: tuple[str, ...] | None  # the names of its dimensions, if it has one for each

    @property
    def is_camera(self) -> bool:
        """Whether it is a camera."""
        return self.kind.endswith("camera")

    def mapped(self, target: str = "'<another key>'") -> str:
        """Return the code that gives it another common key, or new names, for messages."""
        return f"Source({self.source!r}, feature_map={{{self.own!r}: {target}}})"


ByKey = dict[str, list[OwnFeature]]
"""The features of the sources that have a common key, in the order of sources."""
Windows = dict[str, tuple[str, list[Any]]]
"""The argument and the steps of each window, by common key."""


def derive_schema(
    described: Sequence[SourceFeatures], options: SchemaOptions
) -> tuple[Schema, list[SourceMap]]:
    """Return the schema of a mixture and the map of each source, or raise SelectionError.

    Pure but for the log.
    """
    by_key: ByKey = {}
    for number, source in enumerate(described):
        for feature in _own_features(number, source):
            by_key.setdefault(feature.common, []).append(feature)
    sizes, names = options.listed("cameras"), options.listed_features
    kept, count = _keep_listed(by_key, sizes, names), len(described)
    owned: list[dict[str, OwnFeature]] = [{} for _ in described]
    columns: list[list[ColumnMap]] = [[] for _ in described]
    cameras, vectors = [], []
    texts: list[str] = []
    partial: list[str] = []
    for key, found in kept.items():
        _check_kind(found)
        for feature in found:
            owned[feature.number][key] = feature
        if found[0].is_camera:
            cameras.append(_merge_camera(found, sizes or {}, count))
        elif found[0].kind not in _TEXTS:
            vectors.append(_align_vector(found, names.get(key), columns))
        else:
            (texts if len(found) == count else partial).append(key)
    if partial:
        logger.info("left out, because some sources lack them: %s", ", ".join(partial))
    are_texts = {key: found[0].kind in _TEXTS for key, found in kept.items()}
    windows: Windows = {
        key: (name, steps)
        for name in ("delta_timestamps", "delta_indices")
        for key, steps in parse_windows(name, getattr(options, name), are_texts, _MISSING).items()
    }
    lengths = {key: len(steps) for key, (_, steps) in windows.items()}
    schema = Schema(tuple(cameras), tuple(vectors), tuple(texts), lengths)
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
                f"{feature.source!r}. Give one of them another key: {feature.mapped()}."
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


def _offsets(
    source: SourceFeatures, own: Mapping[str, OwnFeature], windows: Windows, options: SchemaOptions
) -> dict[str, Offsets]:
    """Return the frame offsets of a source's windows by own key, or raise for its rate."""
    found: dict[str, Offsets] = {}
    for key, (argument, steps) in windows.items():
        if key not in own:
            continue
        if argument == "delta_indices":
            found[own[key].own] = np.array(steps, np.int64)
            continue
        deltas = np.array(steps, np.float64)
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


def _own_features(number: int, source: SourceFeatures) -> list[OwnFeature]:
    """Return the features of a source with their common keys, or raise SelectionError. Pure."""
    name, features, feature_map = source.name, source.features, source.feature_map
    unknown = [key for key in feature_map if key not in features]
    if unknown:
        raise SelectionError(
            f"feature_map of source {name!r} names {unknown[0]!r}, but the selected features of "
            f"the dataset are {', '.join(features)}"
        )
    found: dict[str, OwnFeature] = {}
    for own, entry in features.items():
        target = feature_map.get(own, own)
        common, names = (target, None) if isinstance(target, str) else target
        if common in found:
            raise SelectionError(
                f"source {name!r} has both {found[common].own!r} and {own!r} as {common!r}. Give "
                "one of them another key in its feature_map."
            )
        dtype = entry["dtype"]
        if dtype in CAMERA_DTYPES:
            kind = "depth camera" if is_depth(entry) else "camera"
        else:
            kind = dtype if dtype in _TEXTS else _SAMPLE_DTYPES[np.dtype(dtype).kind]
        chosen = None if own in DEFAULT_FEATURES else alignment_names(entry)
        chosen = chosen if names is None else tuple(names)
        shape = tuple(entry["shape"])
        found[common] = OwnFeature(number, name, own, common, kind, entry, shape, chosen)
        if names is not None:
            _check_new_names(found[common])
    return list(found.values())


def alignment_names(entry: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the names of a feature's dimensions, or None unless there is one for each. Pure.

    Datasets store a list, lists in an object ({"motors": ["a", "b"]}), or numbers in an object
    ({"a": 0, "b": 1}).
    """
    names = entry.get("names")
    if isinstance(names, Mapping) and names and all(map(arguments.is_whole, names.values())):
        names = sorted(names, key=names.__getitem__)
    flat = _flatten(names)
    is_named = all(isinstance(name, str) for name in flat) and len(flat) == math.prod(
        entry["shape"]
    )
    return tuple(flat) if is_named else None


def _check_kind(found: Sequence[OwnFeature]) -> None:
    """Raise SelectionError unless the features of one common key are of one kind."""
    first = found[0]
    for other in found[1:]:
        if other.kind != first.kind:
            raise SelectionError(
                f"{first.common!r} is of kind {first.kind} in {first.source!r} and of kind "
                f"{other.kind} in {other.source!r}. Give one of them another key: "
                f"{other.mapped()}."
            )


def align(
    found: Sequence[OwnFeature], listed: tuple[str, ...] | None
) -> tuple[tuple[int, ...], tuple[str, ...] | None, list[tuple[int, ...] | None]]:
    """Return the common shape and names of a numeric feature, and each source's dimensions. Pure.

    The third value has, for each source, the place of each own dimension in the common vector, or
    None if both are equal. `listed` are the names that the user's schema gives.
    Dimensions are matched by name alone, so names must tell them apart.
    """
    first = found[0]
    layouts = {(feature.shape, feature.names) for feature in found}
    if len(layouts) == 1 and listed in (None, first.names):
        return first.shape, first.names, [None] * len(found)
    given = {feature.names for feature in found} - {None}
    if {feature.shape for feature in found} == {(1,)} and len(given) <= 1 and listed is None:
        return (1,), next(iter(given), None), [None] * len(found)  # one number has one place
    widest = max(found, key=lambda feature: len(feature.names or ()))
    common = listed or widest.names or ()
    for feature in sorted(found, key=lambda feature: feature is widest):
        is_alike = feature.shape == widest.shape and feature.names is widest.names is None
        fault = None if is_alike and listed is None else _find_fault(feature, common)
        if fault is not None:
            other = next((f for f in (widest, *found) if f is not feature), None)
            raise _misfit(feature, fault, other if listed is None else None)
    places = {name: place for place, name in enumerate(common)}
    dims = [tuple(places[name] for name in feature.names or ()) for feature in found]
    own_order = tuple(range(len(common)))
    return (len(common),), common, [None if d == own_order else d for d in dims]


def _find_fault(feature: OwnFeature, common: tuple[str, ...]) -> str | None:
    """Return why the dimensions of a feature cannot be found among the common names, or None."""
    names = feature.names or ()
    if len(feature.shape) > 1:
        return f"has the shape {feature.shape}, and only vectors can be aligned"
    if not names:
        return f"does not name its {feature.shape[0]} dimensions"
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        return f"has several dimensions named {twice!r}"
    extra = [name for name in names if name not in common]
    return f"has other names: {shorten_names(extra, _MOST_NAMES_SHOWN)}" if extra else None


def _misfit(feature: OwnFeature, fault: str, other: OwnFeature | None) -> SelectionError:
    """Return the error for a feature that does not fit another source, or else the schema."""
    key, union = feature.common, ""
    if other is None:
        place = "the schema's names"
    else:
        shown = shorten_names(other.names or (), _MOST_NAMES_SHOWN)
        place = f"that of {other.source!r}, of shape {other.shape}"
        place += f" with the names {shown}" if shown else ""
        if other.names and feature.names:
            names = [*dict.fromkeys(other.names + feature.names)]
            union = f"; or list all names: schema={{'features': {{{key!r}: {names}}}}}"
    renamed = feature.mapped(f"({key!r}, [{math.prod(feature.shape)} names])")
    return SelectionError(
        f"{key!r} of {feature.source!r} {fault}, so it cannot be aligned with {place}. Give equal "
        f"dimensions equal names: {renamed}; or give it another key: "
        f"{feature.mapped()}{union}."
    )


def _check_new_names(feature: OwnFeature) -> None:
    shape, names = feature.shape, feature.names or ()
    is_vector = feature.kind in _SAMPLE_DTYPES.values() and len(shape) == 1
    if not is_vector or len(names) != shape[0]:
        alone = f"a key alone ({feature.kind}, shape {shape})"
        raise SelectionError(
            f"feature_map of source {feature.source!r} gives {len(names)} names for "
            f"{feature.own!r}; want {f'{shape[0]} names' if is_vector else alone}"
        )


def _flatten(names: Any) -> list[Any]:
    if isinstance(names, Mapping):
        names = list(names.values())
    if not isinstance(names, list | tuple):
        return [names]
    return [name for part in names for name in _flatten(part)]
