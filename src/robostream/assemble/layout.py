# SPDX-License-Identifier: Apache-2.0
"""How samples lie in a batch: arrays, windows, cameras and texts, computed once."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from robostream.assemble.opened import OpenedDataset
from robostream.assemble.spec import ImageTransforms, Offsets, SampleSpec
from robostream.decode import Size, yuv_bytes
from robostream.meta import (
    DepthCoding,
    decoded_bytes,
    image_shape,
    is_depth,
)
from robostream.plan import Ints, Segments

if TYPE_CHECKING:
    from robostream.assemble.schema import Placement

_EPISODE_STEP = 1 << 40

ArrayLayout = tuple[tuple[int, ...], npt.DTypeLike]


def array_layout(dtype: str, shape: tuple[int, ...], steps: int | None) -> ArrayLayout:
    """Return how samples hold a numeric feature with a window of `steps`, as in LeRobot. Pure."""
    kind = {"b": np.bool_, "f": np.float32}.get(np.dtype(dtype).kind, np.int64)
    return (*(() if steps is None else (steps,)), *(() if shape == (1,) else shape)), kind


@dataclass(frozen=True, slots=True)
class CameraLayout:
    """One camera of a sample."""

    key: str
    # The shape of its images in a sample, with an axis for a window of several.
    shape: tuple[int, ...]
    dtype: npt.DTypeLike  # uint8, or float32
    stack: tuple[int, ...]  # the same shape as (steps, channels, height, width)
    coding: DepthCoding | None  # how a depth video codes distances; None for all else
    is_transformed: bool  # whether the user's transform applies: to all cameras but depth
    recorded_unit: str | None  # the unit of a depth image in Parquet; None for all else
    resize: Size | None  # the size its frames are scaled to after decoding; None for their own size
    decoded_bytes: int  # the bytes of one frame as decoded
    cached_bytes: int  # the bytes of one frame in the frame cache
    gop_frames: int  # the frames of the longest GOP in its first video; 1 without a video
    has_long_gops: bool  # whether its GOPs are decoded in several calls
    is_yuv: bool = False  # whether a batch holds its frames as YUV 4:2:0, to be drawn on arrival

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
    """What a camera's files say about its frames."""

    shape: tuple[int, int, int]  # their (channels, height, width), before scaling
    gop_frames: int = 1  # the frames of the longest GOP in its first video; 1 without a video
    has_long_gops: bool = False  # whether its GOPs are decoded in several calls


@dataclass(frozen=True, eq=False)
class SampleLayout:
    """How the samples of a dataset lie in a batch."""

    dataset: OpenedDataset
    # What the files of cameras say; info.json describes the other cameras.
    probed: Mapping[str, ProbedCamera] = field(default_factory=dict)

    @cached_property
    def cameras(self) -> list[CameraLayout]:
        """The cameras of a sample."""
        features, spec = self.dataset.meta.info.features, self.dataset.spec
        cameras = []
        for key in spec.cameras:
            probed = self.probed.get(key) or ProbedCamera(image_shape(features[key]))
            cameras.append(_camera_layout(key, features[key], spec, probed))
        return cameras

    @cached_property
    def texts(self) -> list[str]:
        """The text features, and the task."""
        features, columns = self.dataset.meta.features, self.dataset.spec.columns
        return [*(k for k in columns if features[k]["dtype"] in ("string", "language")), "task"]

    @cached_property
    def tasks(self) -> list[str]:
        """The texts of the dataset's tasks, by number."""
        return self.dataset.meta.tasks.index

    @cached_property
    def windows(self) -> list[tuple[Offsets, list[str]]]:
        """The different windows, each with the features that have it."""
        shared: dict[bytes, tuple[Offsets, list[str]]] = {}
        for key, offsets in self.dataset.spec.windows.items():
            shared.setdefault(offsets.tobytes(), (offsets, []))[1].append(key)
        return list(shared.values())

    @cached_property
    def arrays(self) -> dict[str, ArrayLayout]:
        """The shape and dtype of each array of a sample."""
        layout: dict[str, ArrayLayout] = {}
        windows = self.dataset.spec.windows
        for key in self.dataset.spec.columns:
            entry = self.dataset.meta.features[key]
            if entry["dtype"] not in ("string", "language", "image"):
                steps = len(windows[key]) if key in windows else None
                layout[key] = array_layout(entry["dtype"], entry["shape"], steps)
        layout |= {camera.key: camera.batch_array for camera in self.cameras}
        return layout | {f"{key}_is_pad": ((len(o),), np.bool_) for key, o in windows.items()}


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


@dataclass(frozen=True, eq=False)
class SourceLayout:
    """One dataset's samples in the batches of a stream."""

    own: SampleLayout  # how they lie by themselves
    # The dataset's camera for each camera of a batch; None if it has none.
    cameras: tuple[CameraLayout | None, ...]
    first_episode: int = 0  # the number of its episode 0 in the stream
    placement: Placement | None = None  # where its values go; None if batches hold them as they are

    @cached_property
    def dataset(self) -> OpenedDataset:
        """The dataset."""
        return self.own.dataset

    def window_limits(self, episode: int, frame: int, length: int) -> tuple[int, int]:
        """Return the frames [first, stop) at which windows of a frame end.

        That is the episode, or the range of kept frames if windows are clipped to it.
        """
        if self._ranges is None:
            return 0, length
        keys, runs = self._ranges
        own_episode = episode - self.first_episode
        at = int(np.searchsorted(keys, own_episode * _EPISODE_STEP + frame, "right")) - 1
        first, count, stride = (int(c[at]) for c in (runs.firsts, runs.counts, runs.strides))
        return first, first + (count - 1) * stride + 1

    @cached_property
    def _ranges(self) -> tuple[Ints, Segments] | None:
        """The kept ranges, with sorted keys, if windows are clipped to them."""
        if self.dataset.frames is None or not self.dataset.spec.clips_windows:
            return None
        runs = self.dataset.frames.segments
        return runs.episodes * _EPISODE_STEP + runs.firsts, runs


@dataclass(frozen=True, eq=False)
class BatchLayout:
    """How the samples of a stream lie in a batch."""

    # The shape and dtype of each array of a sample, but for cameras.
    entries: Mapping[str, ArrayLayout]
    texts: list[str]
    cameras: tuple[CameraLayout, ...]
    sources: tuple[SourceLayout, ...]
    # The output of the user's transforms by camera: shape and dtype.
    transformed: Mapping[str, ArrayLayout] = field(default_factory=dict)

    @cached_property
    def arrays(self) -> dict[str, ArrayLayout]:
        """The shape and dtype of each array of a sample."""
        cameras = {c.key: self.transformed.get(c.key, c.batch_array) for c in self.cameras}
        return {key: cameras.get(key, entry) for key, entry in self.entries.items()}

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays of one sample."""
        return sum(
            math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in self.arrays.values()
        )

    @cached_property
    def videos(self) -> tuple[str, ...]:
        """The cameras that some dataset stores as video."""
        return tuple(
            camera.key
            for number, camera in enumerate(self.cameras)
            if any(own.key in source.dataset.spec.videos for source, own in self.owners(number))
        )

    @cached_property
    def transforms(self) -> list[ImageTransforms]:
        """The user's transforms of images."""
        found = (source.dataset.spec.image_transforms for source in self.sources)
        return [transform for transform in found if transform is not None]

    @property
    def images_per_sample(self) -> int:
        """The most images in a sample, windows included."""
        return sum(camera.stack[0] for camera in self.cameras)

    def owners(self, camera: int) -> list[tuple[SourceLayout, CameraLayout]]:
        """Return the datasets that have a camera, each with its own layout of it."""
        pairs = ((source, source.cameras[camera]) for source in self.sources)
        return [(source, own) for source, own in pairs if own is not None]

    def window_frames(self, camera: int) -> int:
        """Return how many frames lie between the ends of a camera's longest window."""
        windows = (source.dataset.spec.windows.get(own.key) for source, own in self.owners(camera))
        return max((int(np.ptp(window)) for window in windows if window is not None), default=0)

    def in_yuv(self, cameras: Collection[str]) -> BatchLayout:
        """Return the layout with frames of some untransformed cameras as YUV 4:2:0."""
        chosen = {number for number, camera in enumerate(self.cameras) if camera.key in cameras}

        def mark(layouts: Sequence[CameraLayout | None]) -> tuple[Any, ...]:
            return tuple(c and replace(c, is_yuv=n in chosen) for n, c in enumerate(layouts))

        sources = tuple(replace(source, cameras=mark(source.cameras)) for source in self.sources)
        return replace(self, cameras=mark(self.cameras), sources=sources)


def plain_batches(layout: SampleLayout) -> BatchLayout:
    """Return the layout of batches that hold the samples of one dataset as they are."""
    cameras = tuple(layout.cameras)
    return BatchLayout(layout.arrays, layout.texts, cameras, (SourceLayout(layout, cameras),))
