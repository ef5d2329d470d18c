# SPDX-License-Identifier: Apache-2.0
"""How samples lie in a batch: which arrays, windows, cameras and texts. Worked out once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.spec import SampleSpec
from robostream.assemble.windows import Offsets
from robostream.decode import Size, yuv_bytes
from robostream.meta import (
    DepthCoding,
    decoded_bytes,
    image_shape,
    is_depth,
)

ArrayLayout = tuple[tuple[int, ...], npt.DTypeLike]


@dataclass(frozen=True, slots=True)
class CameraLayout:
    """One camera of a sample.

    Attributes:
        key: Its name.
        shape: Of its pictures in a sample, with an axis for a window of several.
        dtype: uint8, or float32.
        stack: The same shape as (steps, channels, height, width).
        coding: How a depth video's codes become distances; None for all else.
        is_transformed: Whether the user's transform applies: to all cameras but depth.
        recorded_unit: The unit of a depth picture in Parquet; None for all else.
        resize: What its pictures are scaled to when they are decoded; None for their own size.
        decoded_bytes: Bytes of one picture, as decoders leave it.
        cached_bytes: Bytes of one picture, as it is kept.
        gop_frames: Frames of the longest GOP in its first video; 1 where there is none.
        has_long_gops: Whether GOPs there are decoded in several goes.
        is_yuv: Whether its pictures lie in a batch as parcels, to be drawn where it arrives.
    """

    key: str
    shape: tuple[int, ...]
    dtype: npt.DTypeLike
    stack: tuple[int, ...]
    coding: DepthCoding | None
    is_transformed: bool
    recorded_unit: str | None
    resize: Size | None
    decoded_bytes: int
    cached_bytes: int
    gop_frames: int
    has_long_gops: bool
    is_yuv: bool = False

    def with_size(self, picture: tuple[int, ...]) -> CameraLayout:
        """Return the camera with pictures of another (channels, height, width)."""
        window = self.shape[: len(self.shape) - len(picture)]
        return replace(self, shape=(*window, *picture), stack=(self.stack[0], *picture))

    @property
    def is_uint8(self) -> bool:
        """Whether its pictures are delivered as uint8."""
        return np.dtype(self.dtype) == np.uint8

    @property
    def yuv_size(self) -> Size | None:
        """The size of its pictures if they are parcels."""
        return (self.stack[2], self.stack[3]) if self.is_yuv else None

    @property
    def batch_array(self) -> ArrayLayout:
        """How its pictures of one sample lie in a batch that is being built."""
        if not self.is_yuv:
            return self.shape, self.dtype
        _, _, height, width = self.stack
        return (*self.shape[:-3], yuv_bytes(width, height)), np.uint8


class ProbedCamera(NamedTuple):
    """What the files of a camera say of it.

    Attributes:
        shape: (channels, height, width) of its pictures, before they are scaled.
        gop_frames: Frames of the longest GOP in its first video; 1 where there is none.
        has_long_gops: Whether GOPs there are decoded in several goes.
    """

    shape: tuple[int, int, int]
    gop_frames: int = 1
    has_long_gops: bool = False


class SampleLayout:
    """How the samples of one recipe lie in a batch.

    Args:
        dataset: The dataset.
        found: What is known of cameras from their files; of the others, what info.json declares.
        transformed: What the user's transform makes of a camera: shape and dtype by key.
        parcels: Cameras whose pictures travel as 4:2:0.
    """

    def __init__(
        self,
        dataset: OpenedDataset,
        *,
        found: Mapping[str, ProbedCamera] | None = None,
        transformed: Mapping[str, ArrayLayout] | None = None,
        parcels: Collection[str] = (),
    ) -> None:
        self.dataset = dataset
        self.meta = dataset.meta
        self.spec = dataset.spec
        self._found = dict(found or {})
        self._transformed = dict(transformed or {})
        self._parcels = frozenset(parcels)

    @cached_property
    def cameras(self) -> list[CameraLayout]:
        """The cameras of a sample."""
        features, spec = self.meta.info.features, self.spec
        declared = {key: ProbedCamera(image_shape(features[key])) for key in spec.cameras}
        found = declared | self._found
        cameras = [_camera_layout(key, features[key], spec, found[key]) for key in spec.cameras]
        return [replace(camera, is_yuv=camera.key in self._parcels) for camera in cameras]

    def after_transform(self, transformed: Mapping[str, ArrayLayout]) -> SampleLayout:
        """Return the layout with what the user's transform makes of cameras."""
        return SampleLayout(self.dataset, found=self._found, transformed=transformed)

    def in_yuv(self, cameras: Collection[str]) -> SampleLayout:
        """Return the layout with pictures of some cameras as 4:2:0; none that is transformed."""
        found, transformed = self._found, self._transformed
        return SampleLayout(self.dataset, found=found, transformed=transformed, parcels=cameras)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of one sample."""
        return sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.arrays.values()
        )

    @cached_property
    def texts(self) -> list[str]:
        """The features that are texts, and the task."""
        features = self.meta.features
        texts = [k for k in self.spec.columns if features[k]["dtype"] in ("string", "language")]
        return [*texts, "task"]

    @cached_property
    def windows(self) -> list[tuple[Offsets, list[str]]]:
        """The windows, each with the features that have it."""
        shared: dict[bytes, tuple[Offsets, list[str]]] = {}
        for key, offsets in self.spec.windows.items():
            shared.setdefault(offsets.tobytes(), (offsets, []))[1].append(key)
        return list(shared.values())

    @cached_property
    def arrays(self) -> dict[str, ArrayLayout]:
        """Shape and dtype of each array of a sample."""
        layout: dict[str, ArrayLayout] = {}
        for key in self.spec.columns:
            entry = self.meta.features[key]
            if entry["dtype"] in ("string", "language", "image"):
                continue
            inner = () if entry["shape"] == (1,) else entry["shape"]
            window = (len(self.spec.windows[key]),) if key in self.spec.windows else ()
            kind = np.dtype(entry["dtype"]).kind
            dtype = {"b": np.bool_, "f": np.float32}.get(kind, np.int64)
            layout[key] = ((*window, *inner), dtype)
        for camera in self.cameras:
            layout[camera.key] = self._transformed.get(camera.key, camera.batch_array)
        pads = {f"{key}_is_pad": ((len(o),), np.bool_) for key, o in self.spec.windows.items()}
        return layout | pads


def _camera_layout(
    key: str, entry: Mapping[str, Any], spec: SampleSpec, found: ProbedCamera
) -> CameraLayout:
    """Return the layout of a camera, before any transform.

    A window of one frame keeps its axis for pictures in Parquet and loses it for videos.
    """
    depth, video = is_depth(entry), key in spec.videos
    channels, *own = found.shape
    resize = spec.resize.get(key)
    picture = (channels, *(resize or own))
    info = entry.get("info") or {}
    steps = len(spec.windows.get(key, ()))
    is_bare = steps == 0 or (steps == 1 and video)
    return CameraLayout(
        key=key,
        shape=picture if is_bare else (steps, *picture),
        dtype=np.uint8 if video and spec.return_uint8 and not depth else np.float32,
        stack=(max(steps, 1), *picture),
        coding=DepthCoding.from_info(info) if depth and video else None,
        is_transformed=spec.image_transforms is not None and not depth,
        recorded_unit=info.get("depth_unit") if depth else None,
        resize=resize,
        decoded_bytes=decoded_bytes(entry, found.shape),
        cached_bytes=decoded_bytes(entry, picture),
        gop_frames=found.gop_frames,
        has_long_gops=found.has_long_gops,
    )
