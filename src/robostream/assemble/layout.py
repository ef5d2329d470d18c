# SPDX-License-Identifier: Apache-2.0
"""The arrays, windows, cameras and texts of a sample in a batch, computed once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.spec import Offsets, SampleSpec
from robostream.decode import Size, yuv_bytes
from robostream.meta import (
    DepthCoding,
    LeRobotDatasetMetadata,
    decoded_bytes,
    image_shape,
    is_depth,
)

ArrayLayout = tuple[tuple[int, ...], npt.DTypeLike]


def array_layout(dtype: str, shape: tuple[int, ...], steps: int | None) -> ArrayLayout:
    """Return how samples hold a numeric feature with a window of `steps`, as in LeRobot. Pure."""
    kind = {"b": np.bool_, "f": np.float32}.get(np.dtype(dtype).kind, np.int64)
    return (*(() if steps is None else (steps,)), *(() if shape == (1,) else shape)), kind


@dataclass(frozen=True, slots=True)
class CameraLayout:
    """One camera of a sample.

    Attributes:
        key: Its name.
        shape: The shape of its images in a sample, with an axis for a window of several.
        dtype: uint8, or float32.
        stack: The same shape as (steps, channels, height, width).
        coding: How a depth video codes distances; None for all else.
        is_transformed: Whether the user's transform applies: to all cameras but depth.
        recorded_unit: The unit of a depth image in Parquet; None for all else.
        resize: The size its frames are scaled to after decoding; None for their own size.
        decoded_bytes: The bytes of one frame as decoded.
        cached_bytes: The bytes of one frame in the frame cache.
        gop_frames: The frames of the longest GOP in its first video; 1 without a video.
        has_long_gops: Whether its GOPs are decoded in several calls.
        is_yuv: Whether a batch holds its frames as YUV 4:2:0, to be drawn on arrival.
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

    def with_size(self, image: tuple[int, ...]) -> CameraLayout:
        """Return the camera with images of another (channels, height, width)."""
        if self.stack[1:] == image:
            return self
        window = self.shape[: len(self.shape) - len(image)]
        return replace(self, shape=(*window, *image), stack=(self.stack[0], *image))

    @property
    def is_uint8(self) -> bool:
        """Whether its images are delivered as uint8."""
        return np.dtype(self.dtype) == np.uint8

    @property
    def yuv_size(self) -> Size | None:
        """The (height, width) of its frames if a batch holds them as YUV 4:2:0, else None."""
        return (self.stack[2], self.stack[3]) if self.is_yuv else None

    @property
    def batch_array(self) -> ArrayLayout:
        """The shape and dtype of its images of one sample while a batch is built."""
        if not self.is_yuv:
            return self.shape, self.dtype
        _, _, height, width = self.stack
        return (*self.shape[:-3], yuv_bytes(width, height)), np.uint8


class ProbedCamera(NamedTuple):
    """What a camera's files say about its frames.

    Attributes:
        shape: Their (channels, height, width), before scaling.
        gop_frames: The frames of the longest GOP in its first video; 1 without a video.
        has_long_gops: Whether its GOPs are decoded in several calls.
    """

    shape: tuple[int, int, int]
    gop_frames: int = 1
    has_long_gops: bool = False


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """How the samples of a dataset lie in a batch.

    Attributes:
        dataset: The dataset.
        probed: What the files of cameras say; info.json describes the other cameras.
    """

    dataset: OpenedDataset
    probed: Mapping[str, ProbedCamera] = field(default_factory=dict)

    @cached_property
    def meta(self) -> LeRobotDatasetMetadata:
        """The metadata of the dataset."""
        return self.dataset.meta

    @cached_property
    def spec(self) -> SampleSpec:
        """What a sample holds."""
        return self.dataset.spec

    @cached_property
    def cameras(self) -> list[CameraLayout]:
        """The cameras of a sample."""
        features, spec = self.meta.info.features, self.spec
        cameras = []
        for key in spec.cameras:
            probed = self.probed.get(key) or ProbedCamera(image_shape(features[key]))
            cameras.append(_camera_layout(key, features[key], spec, probed))
        return cameras

    @cached_property
    def texts(self) -> list[str]:
        """The text features, and the task."""
        features = self.meta.features
        texts = [k for k in self.spec.columns if features[k]["dtype"] in ("string", "language")]
        return [*texts, "task"]

    @cached_property
    def windows(self) -> list[tuple[Offsets, list[str]]]:
        """The different windows, each with the features that have it."""
        shared: dict[bytes, tuple[Offsets, list[str]]] = {}
        for key, offsets in self.spec.windows.items():
            shared.setdefault(offsets.tobytes(), (offsets, []))[1].append(key)
        return list(shared.values())

    @cached_property
    def arrays(self) -> dict[str, ArrayLayout]:
        """The shape and dtype of each array of a sample."""
        layout: dict[str, ArrayLayout] = {}
        for key in self.spec.columns:
            entry = self.meta.features[key]
            if entry["dtype"] in ("string", "language", "image"):
                continue
            steps = len(self.spec.windows[key]) if key in self.spec.windows else None
            layout[key] = array_layout(entry["dtype"], entry["shape"], steps)
        for camera in self.cameras:
            layout[camera.key] = camera.batch_array
        pads = {f"{key}_is_pad": ((len(o),), np.bool_) for key, o in self.spec.windows.items()}
        return layout | pads


def _camera_layout(
    key: str, entry: Mapping[str, Any], spec: SampleSpec, probed: ProbedCamera
) -> CameraLayout:
    """Return the layout of a camera, before any transform.

    As in LeRobot, a window of one frame keeps its axis for images in Parquet, but not for videos.
    """
    depth, video = is_depth(entry), key in spec.videos
    channels, *own_size = probed.shape
    resize = spec.resize.get(key)
    image = (channels, *(resize or own_size))
    info = entry.get("info") or {}
    steps = len(spec.windows.get(key, ()))
    is_bare = steps == 0 or (steps == 1 and video)
    return CameraLayout(
        key=key,
        shape=image if is_bare else (steps, *image),
        dtype=np.uint8 if video and spec.return_uint8 and not depth else np.float32,
        stack=(max(steps, 1), *image),
        coding=DepthCoding.from_info(info) if depth and video else None,
        is_transformed=spec.image_transforms is not None and not depth,
        recorded_unit=info.get("depth_unit") if depth else None,
        resize=resize,
        decoded_bytes=decoded_bytes(entry, probed.shape),
        cached_bytes=decoded_bytes(entry, image),
        gop_frames=probed.gop_frames,
        has_long_gops=probed.has_long_gops,
    )
