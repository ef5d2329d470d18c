# SPDX-License-Identifier: Apache-2.0
"""What every sample of a mixture has, and how each source's features become that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from robostream import arguments, config
from robostream.assemble.source import FeatureMap
from robostream.assemble.spec import Offsets
from robostream.decode import Size
from robostream.errors import SelectionError
from robostream.meta import DEFAULT_FEATURES, Features
from robostream.plan import Ints

Affine = tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]
"""Scale and shift: a normalised value is value * scale + shift."""


@dataclass(frozen=True, slots=True)
class FeatureSchema:
    """A camera or a numeric feature of every sample.

    Attributes:
        key: Its common key.
        dtype: "video" for a camera; else float32, int64 or bool.
        shape: The (channels, height, width) of images; else as in info.json: (1,) is a number.
        names: The names of its dimensions, if they have some.
        has_mask: Whether some source lacks it or dimensions of it, so that samples have `mask`.
        is_depth: Whether it is a camera that measures distance.
    """

    key: str
    dtype: str
    shape: tuple[int, ...]
    names: tuple[str, ...] | None
    has_mask: bool
    is_depth: bool = False

    @property
    def mask(self) -> str:
        """The key of bools that are True for what the dataset lacks: the camera, or dimensions."""
        return f"{self.key}_{'is_missing' if self.dtype == 'video' else 'dim_is_pad'}"

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of info.json."""
        if self.dtype != "video":
            names = None if self.names is None else list(self.names)
            return {"dtype": self.dtype, "shape": self.shape, "names": names}
        channels, *size = self.shape
        axes = ["height", "width", "channels"]
        info = {"info": {"is_depth_map": True}} if self.is_depth else {}
        return {"dtype": "video", "shape": (*size, channels), "names": axes} | info


@dataclass(frozen=True, slots=True)
class Schema:
    """What every sample of a mixture has.

    Attributes:
        cameras: Its cameras.
        vectors: Its numbers: state, action and every other numeric feature.
        texts: Its texts and language records, which all sources have; without the task.
        windows: The steps of each window, by common key.
    """

    cameras: tuple[FeatureSchema, ...]
    vectors: tuple[FeatureSchema, ...]
    texts: tuple[str, ...]
    windows: Mapping[str, int]

    @property
    def masks(self) -> list[str]:
        """The keys of the masks of cameras and vectors that some source lacks."""
        return [part.mask for part in (*self.cameras, *self.vectors) if part.has_mask]

    @property
    def features(self) -> Features:
        """The cameras and vectors in the form of info.json."""
        return {part.key: part.entry for part in (*self.cameras, *self.vectors)}

    def describe(self) -> str:
        """Return a table with a line for each feature."""
        lines = [("feature", "shape", "dtype", "steps", "")]
        for part in (*self.cameras, *self.vectors):
            is_camera = part.dtype == "video"
            kind = ("depth" if part.is_depth else "image") if is_camera else part.dtype
            note = f"{'missing' if is_camera else 'padded'} in some sources" * part.has_mask
            shape, steps = " x ".join(map(str, part.shape)), str(self.windows.get(part.key, ""))
            lines.append((part.key, shape, kind, steps, note))
        lines += [(key, "", "text", "", "") for key in self.texts]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


@dataclass(frozen=True, slots=True)
class ColumnMap:
    """A numeric feature of a source in the mixture."""

    own: str  # its key in the dataset
    common: str  # its key in the mixture
    # The place of each own dimension in the common vector; None if both are equal.
    dims: tuple[int, ...] | None

    @property
    def place(self) -> Any:
        """The index of its own dimensions along the last axis of the common vector."""
        return slice(None) if self.dims is None else list(self.dims)

    def write(self, values: npt.NDArray[Any], out: npt.NDArray[Any]) -> None:
        """Write own values (..., own shape) into zeros of (..., common shape)."""
        if self.dims is None:
            out[...] = values
        else:
            # A plain number has no axis of its own.
            out[..., self.place] = values if values.ndim == out.ndim else values[..., None]


@dataclass(frozen=True, slots=True)
class SourceMap:
    """How the features of one source become those of the mixture.

    Attributes:
        columns: The numeric features that the source has.
        cameras: The own key of each camera of the schema; None for one that is missing.
        texts: The own key of each text of the schema.
        windows: The frame offsets of each window, by own key.
        sizes: The (height, width) to which frames must be scaled, by own key of a camera.
    """

    columns: tuple[ColumnMap, ...]
    cameras: tuple[str | None, ...]
    texts: tuple[str, ...]
    windows: Mapping[str, Offsets]
    sizes: Mapping[str, Size]

    def parts(self, schema: Schema) -> dict[str, ColumnMap]:
        """Return the cameras and numeric features that the source has, by common key."""
        pairs = zip(schema.cameras, self.cameras, strict=True)
        cameras = {c.key: ColumnMap(own, c.key, None) for c, own in pairs if own is not None}
        return cameras | {column.common: column for column in self.columns}


@dataclass(frozen=True, eq=False)  # without slots, which cached properties do not work with
class Placement:
    """Where the values of a dataset go in the batches of a mixture."""

    # The own and the common key of each column that is copied as it is, but for the task.
    copied: list[tuple[str, str]]
    # The columns that are normalised, or whose dimensions have other places.
    changed: list[ColumnMap]
    texts: Mapping[str, str]  # its own name of each text
    pads: Mapping[str, str]  # the mask of each of its windows
    # What is the same in all its samples: numbers, masks, and zeros for what it lacks.
    constants: Mapping[str, npt.NDArray[Any]]
    tasks: Ints  # the number of each of its tasks in the mixture
    scales: Mapping[str, Affine]  # factors and summands that normalise columns, by own key

    @cached_property
    def fixed(self) -> list[tuple[str, Any]]:
        """The constants, single ones as plain numbers, which numpy writes faster."""
        return [(k, value if value.ndim else value.item()) for k, value in self.constants.items()]


@dataclass(frozen=True, slots=True)
class SourceFeatures:
    """What a source has."""

    name: str  # its name, for messages
    features: Features  # its features, without cameras that it does not select
    fps: float
    feature_map: FeatureMap  # its feature map, as in `Source`


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """What the user says about the samples of a mixture; windows are by common key.

    Attributes:
        schema: "auto", or {"cameras": {key: [height, width] or None}, "features": {key: names}}.
            Cameras that it does not list are left out. Of a feature it lists the names of all
            dimensions, or has None to leave the feature out; features it does not list are kept.
        delta_timestamps: Windows in seconds.
        delta_indices: Windows in frames of each dataset.
        tolerance_s: How far a window may be from a frame, in seconds.
        resample: "nearest" to take the nearest frame where there is none within the tolerance.
    """

    schema: str | Mapping[str, Any] = "auto"
    delta_timestamps: Mapping[str, Sequence[float]] | None = None
    delta_indices: Mapping[str, Sequence[int]] | None = None
    tolerance_s: float = config.TOLERANCE_S
    resample: str | None = None

    def __post_init__(self) -> None:
        arguments.number(self.tolerance_s, "tolerance_s")
        if self.resample not in (None, "nearest"):
            raise SelectionError(f'resample must be None or "nearest"; got {self.resample!r}')
        for name in ("delta_timestamps", "delta_indices"):
            wanted = "lists by common key (a dict)"
            arguments.of_kind(getattr(self, name), name, Mapping | None, wanted)
        twice = sorted({*(self.delta_timestamps or {})} & {*(self.delta_indices or {})})
        if twice:
            raise SelectionError(
                f"delta_timestamps and delta_indices both have a window of {twice[0]!r}; want one"
            )

    @property
    def listed_features(self) -> dict[str, tuple[str, ...] | None]:
        """The names of each feature that an explicit schema lists; None to leave it out."""
        listed: dict[str, tuple[str, ...] | None] = {}
        for key, given in (self.listed("features") or {}).items():
            where = f"schema['features'][{key!r}]"
            names = None if given is None else tuple(arguments.names(given, where))
            if names is not None and not len(set(names)) == len(names) > 0:
                raise SelectionError(f"{where} must be different names; got {given!r:.200}")
            if key in DEFAULT_FEATURES:
                raise SelectionError(f"{where}: every sample has {key!r}, as it is")
            listed[key] = names
        return listed

    def listed(self, part: str) -> Mapping[str, Any] | None:
        """Return the "cameras" or "features" of an explicit schema; None if it lists none."""
        wanted = '"auto", or {"cameras": {key: [height, width]}, "features": {key: [names]}}'
        given = {} if self.schema == "auto" else self.schema
        if not isinstance(given, Mapping) or not {*given} <= {"cameras", "features"}:
            raise SelectionError(f"schema must be {wanted}; got {given!r:.200}")
        by_key, name = "values by common key (a dict)", f"schema[{part!r}]"
        found: Mapping[str, Any] | None = arguments.of_kind(
            given.get(part), name, Mapping | None, by_key
        )
        return found
