# SPDX-License-Identifier: Apache-2.0
"""A feature of several datasets under one key: of one kind, its dimensions aligned by name."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robostream import arguments
from robostream.assemble.source import FeatureMap
from robostream.errors import SelectionError
from robostream.meta import CAMERA_DTYPES, DEFAULT_FEATURES, Features, is_depth, shorten_names

_TEXTS = ("string", "language")
_SAMPLE_DTYPES = {"b": "bool", "f": "float32", "i": "int64", "u": "int64"}
_MOST_NAMES_SHOWN = 12


@dataclass(frozen=True, slots=True)
class OwnFeature:
    """A feature of one source.

    Attributes:
        number: The number of the source, from 0.
        source: Its name.
        own: Its key in that dataset.
        common: Its key in the mixture.
        kind: "camera", "depth camera", "string", "language", or the dtype of numbers in a sample.
        entry: The entry of info.json.
        names: The names of its dimensions, if it has one for each.
    """

    number: int
    source: str
    own: str
    common: str
    kind: str
    entry: Mapping[str, Any]
    names: tuple[str, ...] | None

    @property
    def shape(self) -> tuple[int, ...]:
        """The declared shape; (1,) is a plain number."""
        return tuple(self.entry["shape"])

    @property
    def is_camera(self) -> bool:
        """Whether it is a camera."""
        return self.kind.endswith("camera")

    @property
    def is_text(self) -> bool:
        """Whether it is a text or language records."""
        return self.kind in _TEXTS

    @property
    def another_key(self) -> str:
        """The code that gives it another common key, for messages."""
        return f"Source({self.source!r}, feature_map={{{self.own!r}: '<another key>'}})"

    @property
    def new_names(self) -> str:
        """The code that names its dimensions, for messages."""
        pair = f"({self.common!r}, [{math.prod(self.shape)} names])"
        return f"Source({self.source!r}, feature_map={{{self.own!r}: {pair}}})"


def own_features(
    number: int, name: str, features: Features, feature_map: FeatureMap
) -> list[OwnFeature]:
    """Return the features of a source with their common keys, or raise SelectionError. Pure."""
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
        kind = _kind_of(entry)
        chosen = None if own in DEFAULT_FEATURES else alignment_names(entry)
        if names is not None:
            _check_new_names(name, own, entry, kind, names)
            chosen = tuple(names)
        found[common] = OwnFeature(number, name, own, common, kind, entry, chosen)
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


def check_kind(found: Sequence[OwnFeature]) -> None:
    """Raise SelectionError unless the features of one common key are of one kind."""
    first = found[0]
    for other in found[1:]:
        if other.kind != first.kind:
            raise SelectionError(
                f"{first.common!r} is of kind {first.kind} in {first.source!r} and of kind "
                f"{other.kind} in {other.source!r}. Give one of them another key: "
                f"{other.another_key}."
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
    return SelectionError(
        f"{key!r} of {feature.source!r} {fault}, so it cannot be aligned with {place}. Give equal "
        f"dimensions equal names: {feature.new_names}; or give it another key: "
        f"{feature.another_key}{union}."
    )


def _check_new_names(
    source: str, own: str, entry: Mapping[str, Any], kind: str, names: Sequence[str]
) -> None:
    shape = tuple(entry["shape"])
    is_vector = kind in _SAMPLE_DTYPES.values() and len(shape) == 1
    if not is_vector or len(names) != shape[0]:
        wanted = f"{shape[0]} names" if is_vector else f"a key alone ({kind}, shape {shape})"
        raise SelectionError(
            f"feature_map of source {source!r} gives {len(names)} names for {own!r}; want {wanted}"
        )


def _kind_of(entry: Mapping[str, Any]) -> str:
    dtype = entry["dtype"]
    if dtype in CAMERA_DTYPES:
        return "depth camera" if is_depth(entry) else "camera"
    return str(dtype) if dtype in _TEXTS else _SAMPLE_DTYPES[np.dtype(dtype).kind]


def _flatten(names: Any) -> list[Any]:
    if isinstance(names, Mapping):
        names = list(names.values())
    if not isinstance(names, list | tuple):
        return [names]
    return [name for part in names for name in _flatten(part)]
