# SPDX-License-Identifier: Apache-2.0
"""How the samples of one or several datasets lie in the same batches."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from robostream.assemble.layout import ArrayLayout, CameraLayout, SampleLayout, array_layout
from robostream.assemble.opened import OpenedDataset
from robostream.assemble.rows import EpisodeRows
from robostream.assemble.sample import Arrays, fill_row, find_targets, read_texts
from robostream.assemble.spec import ImageTransforms
from robostream.errors import SelectionError
from robostream.plan import Ints, Segments

if TYPE_CHECKING:
    from robostream.assemble.mixture_stats import Affine
    from robostream.assemble.schema import ColumnMap, Schema, SourceMap

_EPISODE_STEP = 1 << 40


@dataclass(frozen=True, eq=False)  # without slots, which cached properties do not work with
class Placement:
    """Where the values of a dataset go in the batches of a mixture.

    Attributes:
        copied: The own and the common key of each column that is copied as it is, but for the task.
        changed: The columns that are normalised, or whose dimensions have other places.
        texts: Its own name of each text.
        pads: The mask of each of its windows.
        constants: What is the same in all its samples: numbers, masks, and zeros for what it lacks.
        tasks: The number of each of its tasks in the mixture.
        scales: Factors and summands that normalise columns, by own key.
    """

    copied: list[tuple[str, str]]
    changed: list[ColumnMap]
    texts: Mapping[str, str]
    pads: Mapping[str, str]
    constants: Mapping[str, npt.NDArray[Any]]
    tasks: Ints
    scales: Mapping[str, Affine]

    @cached_property
    def fixed(self) -> list[tuple[str, Any]]:
        """The constants, single ones as plain numbers, which numpy writes faster."""
        return [(k, value if value.ndim else value.item()) for k, value in self.constants.items()]


@dataclass(frozen=True, eq=False)
class SourceLayout:
    """One dataset's samples in the batches of a stream.

    Attributes:
        own: How they lie by themselves.
        cameras: The dataset's camera for each camera of a batch; None if it has none.
        first_episode: The number of its episode 0 in the stream.
        placement: Where its values go; None if batches hold them as they are.
    """

    own: SampleLayout
    cameras: tuple[CameraLayout | None, ...]
    first_episode: int = 0
    placement: Placement | None = None

    @property
    def dataset(self) -> OpenedDataset:
        """The dataset."""
        return self.own.dataset

    def fill(self, arrays: Arrays, place: int, rows: EpisodeRows, frame: int) -> dict[str, Any]:
        """Write the numbers and masks of one sample to a place of a batch; return its texts."""
        limits = self._limits(rows.episode, frame, rows.length)
        if self.placement is None:
            fill_row(self.own, arrays, place, rows, frame, limits)
            return read_texts(self.own, rows, frame)
        placement, numbers = self.placement, rows.numbers
        for key, value in placement.fixed:
            arrays[key][place] = value
        targets, pads = find_targets(self.own, frame, limits)
        for own, common in placement.copied:
            arrays[common][place] = numbers[own][targets.get(own, frame)]
        for column in placement.changed:
            values = numbers[column.own][targets.get(column.own, frame)]
            if column.own in placement.scales:
                scale, shift = placement.scales[column.own]
                values = values * scale + shift
            column.write(values, arrays[column.common][place, ...])
        for own, mask in placement.pads.items():
            arrays[mask][place] = pads[own]
        texts = read_texts(self.own, rows, frame)
        arrays["task_index"][place] = placement.tasks[int(numbers["task_index"][frame])]
        return {key: texts[own] for key, own in placement.texts.items()}

    def window_limits(self, episode: int, frame: int, length: int) -> tuple[int, int]:
        """Return the frames [first, stop) at which windows of a frame end.

        That is the episode, or the range of kept frames if windows are clipped to it.
        """
        return self._limits(episode - self.first_episode, frame, length)

    def _limits(self, own_episode: int, frame: int, length: int) -> tuple[int, int]:
        if self._ranges is None:
            return 0, length
        keys, runs = self._ranges
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
    """How the samples of a stream lie in a batch.

    Attributes:
        entries: The shape and dtype of each array of a sample, but for cameras.
        texts: The texts of a sample.
        cameras: The cameras of a batch.
        sources: The datasets.
        transformed: The output of the user's transforms by camera: shape and dtype.
    """

    entries: Mapping[str, ArrayLayout]
    texts: list[str]
    cameras: tuple[CameraLayout, ...]
    sources: tuple[SourceLayout, ...]
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


def mixed_batches(
    schema: Schema,
    layouts: Sequence[SampleLayout],
    mappings: Sequence[SourceMap],
    placements: Sequence[Placement],
    first_episodes: Sequence[int],
) -> BatchLayout:
    """Return the layout of batches that hold the samples of several datasets."""
    found = [_mix_camera(schema, n, layouts, mappings) for n in range(len(schema.cameras))]
    of_sources = zip(*(own for _, own in found), strict=True) if found else ((),) * len(layouts)
    sources = map(SourceLayout, layouts, of_sources, first_episodes, placements)
    entries: dict[str, ArrayLayout] = {}
    for vector in schema.vectors:
        steps = schema.windows.get(vector.key)
        entries[vector.key] = array_layout(vector.dtype, vector.shape, steps)
    cameras = tuple(camera for camera, _ in found)
    entries |= {camera.key: camera.batch_array for camera in cameras}
    entries |= {f"{key}_is_pad": ((steps,), np.bool_) for key, steps in schema.windows.items()}
    for key, value in placements[0].constants.items():
        entries.setdefault(key, (value.shape, value.dtype))
    return BatchLayout(entries, [*schema.texts, "task"], cameras, tuple(sources))


def place_source(
    schema: Schema,
    mapping: SourceMap,
    *,
    numbers: Mapping[str, int],
    tasks: Ints,
    scales: Mapping[str, Affine],
) -> Placement:
    """Return where a dataset's values go. Pure.

    Args:
        schema: What every sample of the mixture has.
        mapping: Which of the dataset's features are which of the schema's.
        numbers: What else is the same in all its samples: `dataset_index`, `group_index`.
        tasks: The number of each of its tasks in the mixture.
        scales: Factors and summands that normalise columns, by own key.
    """
    parts = mapping.parts(schema)
    constants: dict[str, Any] = {key: np.int64(value) for key, value in numbers.items()}
    constants |= {c.mask: np.bool_(c.key not in parts) for c in schema.cameras if c.has_mask}
    for vector in schema.vectors:
        is_pad, column = np.ones(vector.shape, np.bool_), parts.get(vector.key)
        if column is not None:
            is_pad[..., column.place] = False
        if column is None or column.dims is not None:
            _, dtype = array_layout(vector.dtype, (), None)
            constants[vector.key] = np.zeros((), dtype)
        if vector.has_mask:
            constants[vector.mask] = is_pad
    common = {part.own: key for key, part in parts.items()}
    pads = {own: f"{common[own]}_is_pad" for own in mapping.windows}
    missing = (f"{key}_is_pad" for key in schema.windows)
    constants |= {mask: np.bool_(True) for mask in missing if mask not in pads.values()}
    changed = [c for c in mapping.columns if c.dims is not None or c.own in scales]
    copied = [c for c in mapping.columns if c not in changed and c.own != "task_index"]
    return Placement(
        copied=[(column.own, column.common) for column in copied],
        changed=changed,
        texts={**dict(zip(schema.texts, mapping.texts, strict=True)), "task": "task"},
        pads=pads,
        constants={key: np.asarray(value) for key, value in constants.items()},
        tasks=tasks,
        scales=scales,
    )


def _mix_camera(
    schema: Schema, number: int, layouts: Sequence[SampleLayout], mappings: Sequence[SourceMap]
) -> tuple[CameraLayout, list[CameraLayout | None]]:
    """Return a camera of a mixture's batches, and each dataset's own layout of it."""
    wanted, keys = schema.cameras[number], [mapping.cameras[number] for mapping in mappings]
    own = [
        next((camera for camera in layout.cameras if camera.key == key), None)
        for layout, key in zip(layouts, keys, strict=True)
    ]
    cameras = [camera for camera in own if camera is not None]
    # As for a dataset alone, videos decide on the type, and on the axis of a window of one frame.
    videos = (c for c, one in zip(own, layouts, strict=True) if c and c.key in one.spec.videos)
    common = replace(
        next(videos, cameras[0]),
        key=wanted.key,
        decoded_bytes=max(c.decoded_bytes for c in cameras),
        cached_bytes=max(c.cached_bytes for c in cameras),
        gop_frames=max(c.gop_frames for c in cameras),
        has_long_gops=any(c.has_long_gops for c in cameras),
        is_transformed=any(c.is_transformed for c in cameras),
    )
    for camera in cameras:
        if camera.stack != common.stack:
            raise SelectionError(
                f"the images under {wanted.key} have unlike shapes: {common.stack[1:]} and "
                f"{camera.stack[1:]} (channels, height, width). Give their size in the schema."
            )
    shape, dtype = common.shape, common.dtype
    return common, [camera and replace(camera, shape=shape, dtype=dtype) for camera in own]
