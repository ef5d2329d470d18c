# SPDX-License-Identifier: Apache-2.0
"""Samples written in place: one code path for map-style items and streamed batches.

A batch holds what collating map-style items would give, written straight to where it belongs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from robostream.assemble.columns import language_value
from robostream.assemble.episode import Episode
from robostream.assemble.layout import CameraLayout, SampleLayout
from robostream.assemble.pictures import decode_picture
from robostream.assemble.windows import Offsets, window_targets
from robostream.decode import FrameEngine, Want
from robostream.errors import MetadataError
from robostream.meta import LeRobotDatasetMetadata, decode_depth

Allocate = Callable[[tuple[int, ...], npt.DTypeLike], npt.NDArray[Any]]

_MM_PER_M = np.float32(1000)


class Sample(NamedTuple):
    """A sample and its place in the batch; `position` is when, on the clock of the frame engine."""

    place: int
    episode: Episode
    frame: int
    position: int


class _Camera(NamedTuple):
    """One camera's pictures of one sample: where they go, and what the engine writes."""

    place: int
    layout: CameraLayout
    out: npt.NDArray[Any]
    written: npt.NDArray[Any]


class BatchWriter:
    """Fills the places of one batch; different places may be filled by different threads."""

    def __init__(self, size: int, layout: SampleLayout, *, allocate: Allocate) -> None:
        self._layout = layout
        self._arrays = {
            key: allocate((size, *shape), dtype) for key, (shape, dtype) in layout.arrays.items()
        }
        self._texts: dict[str, list[Any]] = {key: [None] * size for key in layout.texts}
        # The shape of what a transform returns is not known before, so it is stacked at the end.
        self._transformed: dict[str, list[Any]] = {
            camera.key: [None] * size for camera in layout.cameras if camera.is_transformed
        }

    def fill(self, samples: Sequence[Sample], engine: FrameEngine) -> None:
        """Write samples; quicker for several at once than one by one."""
        wants: list[Want] = []
        cameras: list[_Camera] = []
        for sample in samples:
            targets = self._fill_columns(sample)
            for layout in self._layout.cameras:
                camera = self._open_camera(sample.place, layout)
                cameras.append(camera)
                at = targets.get(layout.key)
                if layout.key in sample.episode.spans:
                    wants.append(_want(sample, camera, at))
                else:
                    self._draw_pictures(sample, camera, at)
        engine.read_all(wants)
        for camera in cameras:
            self._finish_camera(camera)

    def result(self) -> dict[str, Any]:
        """Return the batch: tensors with one row per sample, and lists of texts."""
        batch: dict[str, Any] = {key: torch.from_numpy(a) for key, a in self._arrays.items()}
        batch |= {key: torch.stack(cells) for key, cells in self._transformed.items()}
        return batch | self._texts

    def item(self) -> dict[str, Any]:
        """Return the only sample of a batch of one."""
        batch: dict[str, Any] = {key: torch.from_numpy(a)[0] for key, a in self._arrays.items()}
        cells = self._transformed | self._texts
        return batch | {key: values[0] for key, values in cells.items()}

    def _fill_columns(self, sample: Sample) -> dict[str, Offsets]:
        """Write all but the pictures; return the frames of each feature that has a window."""
        place, episode, frame, _ = sample
        targets: dict[str, Offsets] = {}
        for offsets, keys in self._layout.windows:
            frames, is_pad = window_targets(offsets, frame, episode.length)
            for key in keys:
                targets[key] = frames
                self._arrays[f"{key}_is_pad"][place] = is_pad
        for key, column in episode.rows.numbers.items():
            self._arrays[key][place] = column[targets.get(key, frame)]
        for key, cells in self._texts.items():
            cells[place] = self._text(key, episode, frame)
        return targets

    def _text(self, key: str, episode: Episode, frame: int) -> Any:
        meta = self._layout.meta
        if key == "task":
            return task_text(meta, int(episode.rows.numbers["task_index"][frame]))
        value = episode.rows.object_at(key, frame)
        return language_value(value) if meta.features[key]["dtype"] == "language" else value

    def _open_camera(self, place: int, layout: CameraLayout) -> _Camera:
        if layout.is_transformed:
            out = np.empty(layout.shape, layout.dtype)
        else:
            out = self._arrays[layout.key][place]
        stack = out.reshape(layout.stack)
        coded = layout.coding is not None
        return _Camera(place, layout, out, np.empty(layout.stack, np.uint16) if coded else stack)

    def _draw_pictures(self, sample: Sample, camera: _Camera, at: Offsets | None) -> None:
        """Decode the pictures stored in Parquet."""
        key, rows = camera.layout.key, sample.episode.rows
        url = self._layout.meta.location.url
        for slot, frame in enumerate([sample.frame] if at is None else at.tolist()):
            where = f"{url}: {key}, episode {rows.episode}, frame {frame}"
            picture = decode_picture(rows.object_at(key, frame), where=where)
            recorded = camera.layout.recorded_unit
            if recorded not in (None, self._layout.spec.depth_output_unit):
                picture = picture * _MM_PER_M if recorded == "m" else picture / _MM_PER_M
            camera.written[slot] = picture

    def _finish_camera(self, camera: _Camera) -> None:
        """Do what is left once the pictures are there."""
        layout, spec = camera.layout, self._layout.spec
        if layout.coding is not None:
            stack = camera.out.reshape(layout.stack)
            stack[:] = decode_depth(camera.written, layout.coding, spec.depth_output_unit)
        if layout.is_transformed:
            assert spec.image_transforms is not None
            transformed = spec.image_transforms(torch.from_numpy(camera.out))
            self._transformed[layout.key][camera.place] = transformed


def _want(sample: Sample, camera: _Camera, at: Offsets | None) -> Want:
    span = sample.episode.spans[camera.layout.key]
    numbers = span.numbers[sample.frame : sample.frame + 1] if at is None else span.numbers[at]
    return Want(span.file, numbers, camera.written, sample.position, span.within)


def task_text(meta: LeRobotDatasetMetadata, task_index: int) -> str:
    """Return the text of a task, or raise MetadataError if tasks.parquet has no such row."""
    if not 0 <= task_index < len(meta.tasks):
        raise MetadataError(
            f"{meta.meta_location.describe('meta/tasks.parquet')}: a frame has task_index "
            f"{task_index}, but there are only {len(meta.tasks)} tasks. Copy meta/ again."
        )
    return meta.tasks[task_index]
